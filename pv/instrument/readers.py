"""Find the code on whose behalf a library reads a file. Imports only the standard library and `pv`."""

import os
import sys
from pathlib import Path
from types import CodeType

from pv.source.project import is_installed

PACKAGE = Path(__file__).resolve().parents[1]
LIBRARY = str(Path(os.__file__).parent)
METADATA = f"{LIBRARY}/importlib/metadata/"
"""The files of `importlib.metadata`, which lists every folder of `sys.path` and reads only metadata of packages."""
IMPORTING = "<frozen importlib"
_OWN = tuple(f"{PACKAGE}/{folder}/" for folder in ("engines", "instrument", "workers"))
QUIET = (f"{LIBRARY}/traceback.py", f"{LIBRARY}/warnings.py", IMPORTING, *_OWN)
"""Code that reads source only to load or to print it: no result depends on the text that was read."""
BETWEEN = (
    *(f"{LIBRARY}/{name}" for name in ("linecache.py", "tokenize.py", "inspect.py", "pathlib", "contextlib.py")),
    f"{LIBRARY}/glob.py",
    "<frozen codecs>",
    str(Path(__file__).with_name("files.py")),
)
"""The libraries that read a file on behalf of their caller."""
GETTERS = ("get_data", "get_source")
"""The methods of a loader that read a file on behalf of their caller."""


def reader() -> str:
    """Return the source file of the innermost calling code that is not in `BETWEEN`; `IMPORTING` if there is none."""
    frame = sys._getframe(1).f_back
    while frame is not None and _is_between(frame.f_code):
        frame = frame.f_back
    return IMPORTING if frame is None else frame.f_code.co_filename


def _is_between(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(BETWEEN) or (code.co_name in GETTERS and file.startswith(IMPORTING))


def is_quiet(reader: str) -> bool:
    """Return whether the code in the file `reader` is in `QUIET` or in Hypothesis."""
    return reader.startswith(QUIET) or ("/hypothesis/" in reader and is_installed(reader))
