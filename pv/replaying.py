"""What a user asks to replay, held against its form and the box of a harness before anything runs."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from reprlib import repr as short
from typing import Any

from pv.bounds import Box, box
from pv.engines.encoding import decode
from pv.errors import UsageError
from pv.model import Harness
from pv.spelling import nearest

MAX_SHOWN = 200
MAX_FAULTS = 8


def must_be_example(replay: str) -> None:
    """Raises UsageError unless it is VERSION:BLOB, or a JSON object that has every key once."""
    if not (_is_object(replay) if replay.startswith("{") else re.fullmatch(r"[0-9.]+:[A-Za-z0-9+/=_-]+", replay)):
        message = "is no example; it is VERSION:BLOB as a report prints it, or a JSON object"
        raise UsageError(f"{replay[:MAX_SHOWN]!r} {message}")


def _is_object(replay: str) -> bool:
    try:
        return isinstance(json.loads(replay, object_pairs_hook=_once), dict)
    except (ValueError, RecursionError):
        return False


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if twice:
        names = ", ".join(map(short, twice[:MAX_FAULTS]))
        raise UsageError(f"the example to replay has {names} more than once; give each name one value")
    return dict(pairs)


def must_be_point(replay: str, harness: Harness) -> None:
    """Raises UsageError, with every name that is wrong, unless the example is a point of the harness's box."""
    if not replay.startswith("{"):
        raise UsageError(f"{harness.id} is a harness: replay a point of its box, as a JSON object")
    try:
        space = box(harness.bounds, harness.requires)
    except ValueError:
        return  # lint says what is wrong with the box
    faults = list(_faults(json.loads(replay), space))
    if faults:
        said = "; ".join(faults[:MAX_FAULTS])
        raise UsageError(f"{replay[:MAX_SHOWN]} is no point of the box of {harness.id} ({harness.box}): {said}")


def must_name(replay: str, equation: str, known: Sequence[str] | None) -> None:
    """Raises UsageError, with every name that is wrong, unless an example of JSON names all of `known` and no more."""
    if known is None or not replay.startswith("{"):
        return
    given = json.loads(replay)
    faults = [*_missing(given, known), *_unknown(given, known, "variable")]
    if faults:
        said = "; ".join(faults[:MAX_FAULTS])
        raise UsageError(f"{replay[:MAX_SHOWN]} is no example of the equation {equation}: {said}")


def _missing(given: Mapping[str, Any], known: Sequence[str]) -> Iterator[str]:
    return (f"{name} is missing" for name in known if name not in given)


def _unknown(given: Mapping[str, Any], known: Sequence[str], what: str) -> Iterator[str]:
    return (f"there is no {what} {short(name)}{_meant(name, known)}" for name in given if name not in known)


def _faults(point: Mapping[str, Any], space: Box) -> Iterator[str]:
    """What is wrong with each name; where none is, what is wrong with the point."""
    values = {name: _value(item) for name, item in point.items()}
    known = list(space.bounds)
    outside = [name for name in known if name in values and not space.bounds[name].contains(values[name])]
    yield from _missing(values, known)
    yield from (f"{name} is {short(point[name])}, and its bound is {space.bounds[name]}" for name in outside)
    yield from _unknown(values, known, "bound")
    if set(values) == set(known) and not outside:
        yield from _unmet(values, space)


def _value(item: Any) -> Any:
    """What was written; where it cannot be read it stays as it is, which lies within no bound."""
    try:
        return decode(item)
    except Exception:  # a number, a tensor or a type that is none raises what it likes
        return item


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f": did you mean {near!r}?" if near else ""


def _unmet(values: Mapping[str, Any], space: Box) -> Iterator[str]:
    try:
        if not space.admits(values):
            yield f"{space.requires} does not hold there"
    except Exception as error:  # it divides by a bound that may be zero
        yield f"{space.requires} raises {type(error).__name__} there"
