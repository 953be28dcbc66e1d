"""Wrong versions of public functions: the faults that the contract declares."""

from typing import Any


def tokens_of_any_template(original: Any, cache: Any, kind: str, identity: Any, write: Any) -> Any:
    kept = {name: value for name, value in identity.items() if name != "chat_template_sha256"}
    return original(cache, kind, kept, write)
