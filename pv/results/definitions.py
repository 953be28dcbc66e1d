"""What a contract defines besides its claims, mutants and gate, as JSON data: subjects, executable equations, runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from pv.contract import sharing
from pv.contract.claims import Falsifier, Run
from pv.contract.model import Contract
from pv.contract.names import Target

MAX_TEXT = 120
ASKING = ("checks", "invariants")
"""The keys of an equation with which a longer list asks for more."""
Changes = Iterator[tuple[str, str]]


def definitions(contract: Contract) -> dict[str, Any]:
    """Return the definitions of a contract: the equations that it uses included, with their `$name`s replaced."""
    return {
        "subject": _text(contract.subject),
        "subjects": {other.name: {"target": str(other.target)} for other in contract.subjects},
        "claims": {claim.id: _claim(claim) for claim in contract.claims},
        "equations": {name: dict(keys) for name, keys in sharing.executable(contract).items()},
        "runs": {run.name: _run(run) for run in contract.runs},
    }


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    """Yield what is defined in another way, as the id of a claim ("" for the contract) and a text.

    A tolerance is left out, since it has a measure, and so is what only asks for more.
    """
    for text in _keys("", {"subject": old["subject"]}, {"subject": new["subject"]}):
        yield "", text
    for noun in ("subject", "equation", "run"):
        for name, before in old[f"{noun}s"].items():
            after = new[f"{noun}s"].get(name)
            texts = [f"{noun} {name} removed"] if after is None else _keys(f" of {noun} {name}", before, after)
            yield from (("", text) for text in texts)
    for claim in (id_ for id_ in old["claims"] if id_ in new["claims"]):
        yield from ((claim, text) for text in _keys("", old["claims"][claim], new["claims"][claim]))


def _claim(claim: Falsifier) -> dict[str, Any]:
    return {"subject": _text(claim.subject), **claim.options}


def _run(run: Run) -> dict[str, Any]:
    names = {"callable": str(run.callable), "subject": _text(run.subject)}
    return {**names, "arguments": dict(run.arguments), "small": None if run.small is None else dict(run.small)}


def _text(target: Target | None) -> str | None:
    return None if target is None else str(target)


def _keys(place: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if key != sharing.FOR_PEOPLE and old != new and not _asks_more(key, old, new):
            yield f"{key}{place} changed: {_shown(new, old)}, was {_shown(old, new)}"


def _asks_more(key: str, old: Any, new: Any) -> bool:
    more = key in ASKING and all(item in (new or ()) for item in old or ())
    return more or (key == "requires" and new is None)


def _shown(value: Any, other: Any) -> str:
    """Return a value as text; of two mappings only the entries in which they differ."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        value = {key: item for key, item in value.items() if key not in other or other[key] != item}
    if isinstance(value, Mapping):
        value = "; ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return "none" if value in (None, "") else short(str(value))


def short(text: str) -> str:
    """Return a text in quotes, cut at the length that fits a line."""
    return repr(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "...")
