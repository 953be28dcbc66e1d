"""Tells which code reads a file now, through the libraries that read it for that code. Standard library only."""

import os
import sys
from pathlib import Path
from types import CodeType

from pv.source.project import is_installed

PACKAGE = Path(__file__).resolve().parents[1]
DECIDING = ("engines", "instrument", "workers")
LIBRARY = str(Path(os.__file__).parent)
METADATA = f"{LIBRARY}/importlib/metadata/"
"""It lists each folder of `sys.path`, and looks at the metadata of packages alone."""
IMPORTING = "<frozen importlib"
QUIET = (f"{LIBRARY}/traceback.py", f"{LIBRARY}/warnings.py", IMPORTING, *(f"{PACKAGE}/{r}/" for r in DECIDING))
"""Code that reads source to load it, or to print it, as Hypothesis does: no result depends on such a text."""
BETWEEN = (
    *(f"{LIBRARY}/{name}" for name in ("linecache.py", "tokenize.py", "inspect.py", "pathlib", "contextlib.py")),
    f"{LIBRARY}/glob.py",
    "<frozen codecs>",
    str(Path(__file__).with_name("files.py")),
)
"""Code that reads a file for the one that called it."""
GETTERS = ("get_data", "get_source")
"""The methods of a loader that read a file for the one that called them."""


def reader() -> str:
    """Return the file of the code that reads a file now."""
    frame = sys._getframe(1).f_back
    while frame is not None and _is_between(frame.f_code):
        frame = frame.f_back
    return IMPORTING if frame is None else frame.f_code.co_filename


def _is_between(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(BETWEEN) or (code.co_name in GETTERS and file.startswith(IMPORTING))


def is_quiet(reader: str) -> bool:
    """Return whether the code of this file reads others to load or to print them."""
    return reader.startswith(QUIET) or ("/hypothesis/" in reader and is_installed(reader))
