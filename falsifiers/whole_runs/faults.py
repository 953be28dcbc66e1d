"""Wrong versions of public functions: the faults that the contract declares."""

import copy
from collections.abc import Iterator
from itertools import count
from typing import Any

_calls = count()


def tokens_of_any_template(original: Any, cache: Any, kind: str, identity: Any, write: Any) -> Any:
    kept = {name: value for name, value in identity.items() if name != "chat_template_sha256"}
    return original(cache, kind, kept, write)


def seeds_by_call(original: Any, seed: int, **place: int) -> Any:
    return original(seed + next(_calls), **place)


def optimizer_starts_over(original: Any, snapshot: Any, modules: Any, optimizer: Any) -> None:
    before = copy.deepcopy(optimizer.state_dict())
    original(snapshot, modules, optimizer)
    optimizer.load_state_dict(before)


def rows_without_tools(original: Any, path: Any) -> Iterator[Any]:
    for where, row in original(path):
        yield where, {name: value for name, value in row.items() if name != "tools"} if isinstance(row, dict) else row
