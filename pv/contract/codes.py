"""Codes of findings: their class, the codes that loading and evidence use, and the explanation of a code.

The codes of a lint rule are declared in the module of the rule. The explanations are in `rules/CODE.yaml`.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files

import yaml


class Stops(Enum):
    """Kinds of runs that a finding prevents."""

    CONTRACT = "contract"
    """No claim of the contract is tried."""
    MUTANT = "mutant"
    """The mutant of the finding is not tried, but the claims are: a stale mutant must not hide a refutation."""
    SCORE = "score"
    """No mutation score is measured."""
    NOTHING = "nothing"
    """The finding fails the contract, but everything is run."""


@dataclass(frozen=True, slots=True)
class Code:
    """A code of findings, its meaning, and the runs that a finding with this code prevents."""

    name: str
    meaning: str
    stops: Stops = Stops.CONTRACT


LOADING = (
    Code("PV001", "the file cannot be read, or is not UTF-8"),
    Code("PV002", "the file is not YAML"),
    Code("PV003", "the file exceeds a limit of size, depth or number of values"),
    Code("PV004", "unsupported YAML: an alias, an anchor, a tag, a second document or a compound key"),
    Code("PV005", "a duplicate key in a mapping"),
    Code("PV010", "an unknown key"),
    Code("PV011", "a missing key"),
    Code("PV012", "a value of the wrong type or form"),
    Code("PV014", "not a contract, or of an unknown format"),
    Code("PV201", "provable-contracts format: a key that pv does not read", Stops.NOTHING),
    Code("PV205", "provable-contracts format: a number that contradicts the file", Stops.NOTHING),
    Code("PV206", "provable-contracts format: a reference to something that does not exist", Stops.NOTHING),
)
"""The codes of the findings that `pv.contract.load` returns."""
EVIDENCE = Code("PV170", "an evidence file cannot be read, or belongs to another contract or device", Stops.NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The text that `pv explain` shows for a code.

    Attributes:
        why: The reason for the rule.
        wrong: A contract with such a finding, or its relevant sections; if `file` is set, the text of that file.
        right: The corrected text of `wrong`; "" if the file must not exist.
        file: The file with the fault, which the contract names; "" if the fault is in the contract itself.
        contract: The contract that names `file`.
        encoding: The encoding of `wrong`.
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
    # The code is text from the command line: a slash in it must not select a file in another folder.
    if not code.isalnum() or not source.is_file():
        return None
    texts: dict[str, str] = yaml.safe_load(source.read_text(encoding="utf-8"))
    return Explanation(**texts)
