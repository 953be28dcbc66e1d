"""Find the code that reads a file, possibly by calling a library. Imports only the standard library and `pv`."""

import os
import sys
from pathlib import Path
from types import CodeType

from pv.source.project import is_installed

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `pv`."""
LIBRARY = str(Path(os.__file__).parent)
"""The folder of the standard library."""
METADATA = f"{LIBRARY}/importlib/metadata/"
"""The folder of `importlib.metadata`. It lists every folder of `sys.path`, but reads only the metadata of packages."""
IMPORTING = "<frozen importlib"
"""The start of the file name of code of Python's import system."""
_OWN = tuple(f"{PACKAGE}/{folder}/" for folder in ("engines", "instrument", "workers"))
HARMLESS = (f"{LIBRARY}/traceback.py", f"{LIBRARY}/warnings.py", IMPORTING, *_OWN)
"""Code that reads source only to load or to print it, so that no result depends on the text."""
INTERMEDIARIES = (
    *(f"{LIBRARY}/{name}" for name in ("linecache.py", "tokenize.py", "inspect.py", "pathlib", "contextlib.py")),
    f"{LIBRARY}/glob.py",
    "<frozen codecs>",
    str(Path(__file__).with_name("files.py")),
)
"""Code that reads a file because its caller asks for the content."""
GETTERS = ("get_data", "get_source")
"""Methods of loaders that read a file because their caller asks for the content."""


def reader() -> str:
    """Return the source file of the code that reads a file now: the innermost caller that is not an intermediary.

    Return `IMPORTING` if there is no such caller.
    """
    frame = sys._getframe(1).f_back
    while frame is not None and _is_intermediary(frame.f_code):
        frame = frame.f_back
    return IMPORTING if frame is None else frame.f_code.co_filename


def _is_intermediary(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(INTERMEDIARIES) or (code.co_name in GETTERS and file.startswith(IMPORTING))


def is_harmless(reader: str) -> bool:
    """Return whether the code in the file `reader` is in `HARMLESS` or in Hypothesis, so its reads do not matter."""
    return reader.startswith(HARMLESS) or ("/hypothesis/" in reader and is_installed(reader))
