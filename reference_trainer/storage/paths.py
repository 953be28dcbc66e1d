"""Paths in JSON files."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote_from_bytes

__all__ = ["path_in_json"]


def path_in_json(path: Path) -> str | dict[str, str]:
    """Return a path for a JSON file: its text, or {"percent_encoded": ...} of its bytes where they are not UTF-8.

    JSON text is Unicode, so it cannot hold such bytes, and strict readers refuse the lone surrogates that stand for
    them in Python.
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        return {"percent_encoded": quote_from_bytes(os.fsencode(path))}
