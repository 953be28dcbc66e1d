"""The text that the trainer reads unless told otherwise.

It is the language reference of CPython 3.11.7 as the interpreter ships it for `help()`: English prose by people,
frozen here because it differs from one Python version to the next. Its licence lies beside it.
"""

from __future__ import annotations

from importlib.resources import files

__all__ = ["frozen_text"]


def frozen_text() -> bytes:
    """The frozen English text: UTF-8 bytes, the same on every machine and Python version (about 466 kB)."""
    return (files(__package__) / "text" / "python-topics.txt").read_bytes()
