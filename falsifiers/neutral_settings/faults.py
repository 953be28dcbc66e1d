"""Wrong versions of public functions: the faults that the contract declares."""

from itertools import count
from typing import Any

_calls = count()


def tokens_of_any_template(original: Any, cache: Any, kind: str, identity: Any, write: Any) -> Any:
    kept = {name: value for name, value in identity.items() if name != "chat_template_sha256"}
    return original(cache, kind, kept, write)


def seeds_by_call(original: Any, seed: int, **place: int) -> Any:
    return original(seed + next(_calls), **place)
