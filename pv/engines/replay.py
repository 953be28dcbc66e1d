"""Read the example that a user asks to replay, and check its syntax, names and values before the claim is tried.

Functions `refuse_*` raise `UsageError` for an invalid example.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from reprlib import repr as short
from typing import Any

from pv.contract.harness_bounds import Box, parse_box
from pv.contract.model import Harness
from pv.contract.wording import nearest
from pv.engines.encoding import decode
from pv.errors import UsageError

MAX_SHOWN = 200
"""Number of characters of an example that a message shows."""
MAX_INLINE = 300
"""Number of characters of the longest example that is printed as an argument; longer ones are written to a file."""
MAX_FAULTS = 8
"""Number of faults that a message lists."""


def read(replay: str) -> str:
    """Return the example to replay.

    Args:
        replay: The value of `--replay`: VERSION:BLOB, a JSON object, or @FILE with the path of a file that has one.

    Raises:
        UsageError: The file cannot be read.
    """
    if not replay.startswith("@"):
        return replay
    try:
        return Path(replay[1:]).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        message = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"cannot read the example {replay[1:]}: {message}") from error


def refuse_form(replay: str) -> None:
    """Raise `UsageError` unless an example is VERSION:BLOB or a JSON object without duplicate keys."""
    if not (_is_object(replay) if replay.startswith("{") else re.fullmatch(r"[0-9.]+:[A-Za-z0-9+/=_-]+", replay)):
        message = "expected VERSION:BLOB as a report prints it, a JSON object, or @FILE"
        raise UsageError(f"invalid example {replay[:MAX_SHOWN]!r}: {message}")


def _is_object(replay: str) -> bool:
    try:
        return isinstance(json.loads(replay, object_pairs_hook=_unique_pairs), dict)
    except (ValueError, RecursionError):
        return False


def _unique_pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs of a JSON object as a dict. Raise `UsageError` for duplicate keys."""
    duplicates = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if duplicates:
        names = ", ".join(map(short, duplicates[:MAX_FAULTS]))
        raise UsageError(f"duplicate key {names} in the example to replay; give each name one value")
    return dict(pairs)


def point(replay: str) -> Mapping[str, object] | None:
    """Return the values of an example that is a JSON object; None if `replay` is "", that is, nothing is replayed."""
    return dict(json.loads(replay)) if replay else None


def refuse_point(replay: str, harness: Harness) -> None:
    """Raise `UsageError` with the faults of an example, unless it is a point in the box of a harness."""
    if not replay.startswith("{"):
        raise UsageError(f"invalid example for {harness.id}: expected a point of its box as a JSON object")
    try:
        box = parse_box(harness.bounds, harness.requires)
    except ValueError:
        return  # lint reports an invalid box
    refuse_faults(_point_faults(json.loads(replay), box), replay, f"a point of the box of {harness.id} ({harness.box})")


def refuse_names(example: Mapping[str, object], notes: Mapping[str, str], replay: str, of: str) -> None:
    """Raise `UsageError` with the missing and unknown names, unless an example has exactly the expected names.

    Args:
        example: The values by name.
        notes: For each expected name, a note that is printed if the name is missing, or "".
        replay: The text of the example, for the message.
        of: The name of the claim or equation, for the message.
    """
    missing = (
        f"missing {name}" + (f" ({note})" if note else "") for name, note in notes.items() if name not in example
    )
    refuse_faults([*missing, *_unknown_names(example, list(notes), "variable")], replay, f"an example of {of}")


def refuse_faults(faults: Iterable[str], replay: str, expected: str) -> None:
    """Raise `UsageError` if an example has faults.

    Args:
        faults: The faults; the message lists the first `MAX_FAULTS`.
        replay: The text of the example, for the message.
        expected: The expected form, such as `a point of the box`.
    """
    if listed := "; ".join(islice(faults, MAX_FAULTS)):
        raise UsageError(f"{replay[:MAX_SHOWN]} is not {expected}: {listed}")


def _unknown_names(example: Mapping[str, object], names: Sequence[str], noun: str) -> Iterator[str]:
    """Yield a fault for each name of an example that is not in `names`; `noun` is the kind of the names."""
    return (f"unknown {noun} {short(name)}{_suggestion(name, names)}" for name in example if name not in names)


def _point_faults(point: Mapping[str, object], box: Box) -> Iterator[str]:
    """Yield the faults of names and values; if all values are within their bounds, check `requires`."""
    values = {name: _decode_or_keep(item) for name, item in point.items()}
    names = list(box.bounds)
    outside = [name for name in names if name in values and not box.bounds[name].contains(values[name])]
    # Evaluate `requires` only at a complete point within bounds, since it may raise otherwise.
    yield from (f"missing {name}" for name in names if name not in values)
    yield from (f"{name} is {short(point[name])}, and its bound is {box.bounds[name]}" for name in outside)
    yield from _unknown_names(values, names, "bound")
    if set(values) == set(names) and not outside:
        yield from _requires_faults(values, box)


def _decode_or_keep(item: object) -> object:
    """Decode a value. Return a value that cannot be decoded unchanged: it is then within no bound."""
    try:
        return decode(item)
    except Exception:  # an invalid number, tensor or type may raise any exception
        return item


def _suggestion(name: str, names: Sequence[str]) -> str:
    near = nearest(name, names)
    return f" (did you mean {near!r}?)" if near else ""


def _requires_faults(values: Mapping[str, Any], box: Box) -> Iterator[str]:
    """Yield a fault if the expression `requires` of the box is false at a point, or raises an exception."""
    try:
        if not box.admits(values):
            yield f"{box.requires} does not hold there"
    except Exception as error:  # such as a division by a bound that may be zero
        yield f"{box.requires} raises {type(error).__name__} there"
