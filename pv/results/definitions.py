"""The definitions of a contract as JSON data, and a comparison of two versions.

Definitions are subjects, equations, runs and options of claims.
"""

import ast
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pv.contract import sharing
from pv.contract.finding import Location
from pv.contract.model import Contract, Run, Target
from pv.contract.wording import cut

MAX_TEXT = 120
CONTRACT_KEYS = ("subject", "mutation_scope")
"""The keys of a contract whose locations are saved; the location of the gate is saved with the gate."""
CLAIM_KEYS = ("kills", "devices", "examples", "test", "bounds", "subject", "rule", "prediction")
"""The keys of a claim whose locations are saved."""
LISTS_OF_REQUIREMENTS = ("checks", "invariants", "faults")
"""The keys of lists in which an added item makes the contract stricter."""
TOKEN = re.compile(r"\w+|\S")
# A domain with numeric bounds: `real 0..2` has the low bound 0, the high bound 2, and `real ` before them.
RANGE = re.compile(r"(?s)(?P<before>.*?)(?P<low>-?\d[\d.e+-]*?)\.\.(?P<high>-?\d[\d.e+-]*)(?P<after>.*)")
Changes = Iterator[tuple[str, str, str]]
"""Changed definitions: the id of the claim ("" for the contract), the path of the definition, and the description."""


def definitions(contract: Contract) -> dict[str, Any]:
    """Return the definitions of a contract, including the shared equations that it uses, with each `$name` replaced."""
    data = {
        "subject": _text(contract.subject),
        "subjects": {other.name: {"target": str(other.target)} for other in contract.subjects},
        "claims": {claim.id: {"subject": _text(claim.subject), **claim.options} for claim in contract.claims},
        "equations": {name: dict(keys) for name, keys in sharing.executable_equations(contract).items()},
        "runs": {run.name: _run(run) for run in contract.runs},
        "places": {path: {"line": at.line, "column": at.column} for path, at in _places(contract)},
    }
    # Convert tuples to lists and keys to strings, as JSON does: these definitions are compared with saved ones.
    plain: dict[str, object] = json.loads(json.dumps(data))
    return plain


def _places(contract: Contract) -> Iterator[tuple[str, Location]]:
    """Yield the location of each definition by its path, such as `subject` or `equations/kl/tolerance`."""
    yield from ((key, contract.places[key]) for key in CONTRACT_KEYS if key in contract.places)
    for equation in contract.equations:
        yield f"equations/{equation.name}", equation.location
        locations = {key: equation.texts[key](1, 1) for key in equation.executable if key in equation.texts}
        yield from ((f"equations/{equation.name}/{key}", place) for key, place in locations.items())
    for claim in contract.claims:
        yield from ((f"claims/{claim.id}/{key}", claim.at(key)) for key in CLAIM_KEYS if key in claim.places)
    yield from ((f"runs/{run.name}", run.location) for run in contract.runs)
    yield from ((f"subjects/{other.name}", other.location) for other in contract.subjects)


def find_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    """Yield every changed definition, and every removed subject, equation and run.

    The path of a removed definition ends with its name, for example `runs/nightly`, without a key. The key `tolerance`
    of an equation is skipped; `changes` compares its values. Added definitions, removed claims, and changes that only
    make a claim stricter are not reported.
    """
    for key, text in _changed_keys("", {"subject": old["subject"]}, {"subject": new["subject"]}):
        yield "", key, text
    for noun in ("subject", "equation", "run"):
        for name, before in old[f"{noun}s"].items():
            after = new[f"{noun}s"].get(name)
            if after is None:
                yield "", f"{noun}s/{name}", f"{noun} {name} removed"
                continue
            for key, text in _changed_keys(f" of {noun} {name}", before, after, code=noun == "equation"):
                yield "", f"{noun}s/{name}/{key}", text
    for claim, before in old["claims"].items():
        if claim in new["claims"]:
            for key, text in _changed_keys("", before, new["claims"][claim]):
                yield claim, f"claims/{claim}/{key}", text


def _run(run: Run) -> dict[str, object]:
    names = {"callable": run.target, "subject": _text(run.subject)}
    return {**names, "arguments": dict(run.arguments), "small": None if run.small is None else dict(run.small)}


def _text(target: Target | None) -> str | None:
    return None if target is None else str(target)


def _changed_keys(
    of: str, before: Mapping[str, object], after: Mapping[str, object], *, code: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the keys with a changed value that is not stricter, with a description in which `of` names the owner."""
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        # `changes` compares the values of the key `tolerance` of equations.
        if key != "tolerance" and not _same(old, new, code=code) and not _is_stricter(key, old, new):
            yield key, f"{key}{of} changed: {_format_value(new, old)}, was {_format_value(old, new)}"


def _same(old: object, new: object, *, code: bool) -> bool:
    """Return whether two values are equal.

    Args:
        old: The value in the base.
        new: The value now.
        code: Compare texts as code, without their layout.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_same(item, new[name], code=code) for name, item in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(_same(a, b, code=code) for a, b in zip(old, new, strict=True))
    if code and isinstance(old, str) and isinstance(new, str):
        return is_same_text(old, new)
    return bool(old == new) or (old != old and new != new)  # NaN is not equal to itself


def is_same_text(old: str, new: str) -> bool:
    """Return whether two texts are the same code, apart from their layout.

    Python is compared by syntax tree; other texts, such as domains of equations, by tokens.
    """
    return old == new or _layout_free(old) == _layout_free(new)


def _layout_free(text: str) -> str:
    try:
        return ast.dump(ast.parse(textwrap.dedent(text).strip()))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return " ".join(TOKEN.findall(text))


def _is_stricter(key: str, old: Any, new: Any) -> bool:
    """Return whether the changed value of a key makes the contract stricter."""
    if key in LISTS_OF_REQUIREMENTS:
        return all(item in (new or ()) for item in old or ())
    if key == "domain":  # more inputs are tried
        return is_wider(old or {}, new or {})
    return key == "requires" and new is None  # the condition on the inputs was removed


def is_wider(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Return whether the new bounds are equal to the old ones or contain them, as `real 0..2` contains `real 0..1`."""
    same = old.keys() == new.keys()
    return same and all(is_same_text(text, new[name]) or _contains(new[name], text) for name, text in old.items())


def _contains(new: str, old: str) -> bool:
    outer, inner = RANGE.fullmatch(new), RANGE.fullmatch(old)
    if outer is None or inner is None or any(outer[part] != inner[part] for part in ("before", "after")):
        return False
    # The pattern also matches text such as `1e..2`, which is no number.
    try:
        return float(outer["low"]) <= float(inner["low"]) and float(inner["high"]) <= float(outer["high"])
    except ValueError:
        return False


def _format_value(value: object, other: object) -> str:
    """Return a value as text; of a mapping, only the entries that differ from the `other` mapping."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        value = {key: item for key, item in value.items() if key not in other or other[key] != item}
    if isinstance(value, Mapping):
        value = "; ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return "none" if value in (None, "") else short(str(value))


def short(text: str) -> str:
    """Return a text in quotes, cut at the length that fits a line."""
    return repr(cut(text, MAX_TEXT))
