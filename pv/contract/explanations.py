"""The explanations of finding codes: why a rule exists, and a wrong and a right example of it."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The text about one code.

    wrong, right: a contract, or the sections of one that matter; if `file` is given, the text of that file, which
    `contract` names. A right file without text does not exist. encoding: of the wrong example.
    """

    why: str
    wrong: str
    right: str
    file: str = ""
    contract: str = ""
    encoding: str = "utf-8"


@cache
def explanation(code: str) -> Explanation | None:
    """Return the explanation of a code; None if there is none."""
    source = files("pv.contract").joinpath("rules", f"{code}.yaml")
    if not code.isalnum() or not source.is_file():
        return None
    return Explanation(**yaml.safe_load(source.read_text(encoding="utf-8")))
