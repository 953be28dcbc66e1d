"""Faults of reading a text, as wrong versions of `read_text`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any


def digest_of_the_name(original: Any, path: Any, length: int) -> Any:
    """Hash the path instead of the content."""
    return replace(original(path, length), digest=hashlib.sha256(str(path).encode()).hexdigest())
