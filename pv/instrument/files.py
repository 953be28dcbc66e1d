"""The files of the project that a process reads, data and code: its evidence depends on them."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from os import getcwd, listdir, readlink  # code under test may replace those of `os`, which `Path` calls
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from pv.source.project import is_installed

PACKAGE = Path(__file__).resolve().parents[1]
DECIDING = ("engines", "instrument", "workers")
BLIND = os.O_WRONLY | os.O_TRUNC | os.O_EXCL
"""An open with one of these flags reads nothing that was in the file before."""
NATIVE = {"ctypes.dlopen": 0, "sqlite3.connect": 0, "import": 1, "cpython.run_file": 0}
"""The events of Python that name a file which native code then opens, with the place of its name. That of an import is
None unless the module is an extension."""
DESCRIPTORS = "/proc/self/fd"
LISTS = ("os.listdir", "os.scandir")
QUIET = ("/hypothesis/", "/traceback.py", "/warnings.py", "<frozen importlib", *(f"{PACKAGE}/{r}/" for r in DECIDING))
"""Code that reads source to load it, or to print it: no result depends on such a text."""
BETWEEN = (
    "/linecache.py",
    "/tokenize.py",
    "/inspect.py",
    "/pathlib.py",
    "<frozen codecs>",
    "/contextlib.py",
    "/glob.py",
)
"""Code that reads a file for the one that called it."""


class FilesRead:
    """Notes the files that this process opens from now on, and returns those of the project at its end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._opened = set(loaded())
        self._texts = set[str]()
        self._listed = set[str]()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, str | bytes) and not (flags or 0) & BLIND:
                places = _places(os.fsdecode(path), mode)
                self._opened.update(places)
                if os.fsdecode(path).endswith(".py") and not _is_quiet():
                    self._texts.update(places)
        elif event in LISTS:
            path = arguments[0] or "."
            if isinstance(path, str | bytes | os.PathLike) and not _is_quiet():
                self._listed.update(_places(os.fsdecode(path), ""))
        elif event in NATIVE and isinstance(path := arguments[NATIVE[event]], str | bytes | os.PathLike):
            self._opened.update(_places(_path(os.fsdecode(path)), ""))

    def read(self) -> list[str]:
        """Return their paths below the root, those of modules included that came from a cache.

        A file that was read through a link has both names, since the link may change as well as the file.
        """
        return self._inside(self._opened, _is_file)

    def texts(self) -> list[str]:
        """Return the Python files whose text was read, other than to load or to print it."""
        return self._inside(self._texts, _is_file)

    def listed(self) -> list[str]:
        """Return the folders whose entries were read, other than to find a module."""
        return self._inside(self._listed, os.path.isdir)

    def _inside(self, names: Iterable[str], exists: Callable[[Path], bool]) -> list[str]:
        paths = {_source(str(Path(self._root, name))) for name in names}
        named = {Path(name) for path in paths for name in (os.path.normpath(path), _real(path))}
        inside = (path.relative_to(self._root) for path in named if path.is_relative_to(self._root) and exists(path))
        return sorted(path.as_posix() for path in inside if len(path.parts) < 2 or not path.parts[0].startswith("."))


def _is_quiet() -> bool:
    """Return whether the code that reads a file now reads it to load or to print it."""
    frame = sys._getframe(1).f_back
    while frame is not None and any(part in frame.f_code.co_filename for part in BETWEEN):
        frame = frame.f_back
    return frame is None or any(part in frame.f_code.co_filename for part in QUIET)


@cache
def loaded() -> frozenset[str]:
    """Return the files of the modules that are loaded, but for those of pv and of installed packages.

    A fork server asks once for all its forks: to look at each module copies its memory.
    """
    return frozenset(file for name, file in _modules() if not (is_installed(file) or _is_own(name)))


def _modules() -> Iterator[tuple[str, str]]:
    """Yield every loaded module with its file. An attribute of a module may be code that loads others."""
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if file:
            yield name, file


def _is_own(name: str) -> bool:
    """Return whether it is a module of pv, on whose version every result depends anyway."""
    return name.partition(".")[0] in ("pv", "__main__")


def _path(name: str) -> str:
    """Return the path in a URI, as a database may be named, else the name."""
    if name.startswith("file:"):
        with suppress(ValueError):  # it is no URI
            name = unquote(urlsplit(name).path)
    return name.partition("\0")[0]  # no file can have the rest in its name


def _places(path: str, mode: str | None) -> Iterable[str]:
    """Return the absolute paths that `path` may mean now. Only `os.open` has no mode, and it may have a `dir_fd`."""
    if path.startswith("/"):
        return (path,)
    return [f"{folder}/{path}" for folder in _folders(every=mode is None)]


def _folders(*, every: bool) -> Iterator[str]:
    """Yield the current folder, and `every` open one (with other open files): no event tells its `dir_fd`."""
    with suppress(OSError):
        yield getcwd()  # noqa: PTH109  (Path.cwd calls what code under test may replace)
    with suppress(OSError):
        for number in listdir(DESCRIPTORS) if every else ():  # noqa: PTH208  (as for getcwd)
            with suppress(OSError):  # the one that listed them is closed again
                yield readlink(f"{DESCRIPTORS}/{number}")  # noqa: PTH115  (as for getcwd)


def _source(path: str) -> str:
    """Return the path of the source if `path` is its cached bytecode, else `path`."""
    with suppress(ValueError):
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    return path


def _real(path: str) -> str:
    """Return the path without links. Most files share few folders, whose links are followed once."""
    folder, name = os.path.split(path)
    # Path.is_symlink raises for a name that is too long, and a Path for each of a hundred files takes longer.
    place = os.path.join(_real_folder(folder), name)  # noqa: PTH118  (as above)
    is_link = os.path.islink(place)  # noqa: PTH114  (as above)
    return os.path.realpath(place) if is_link or name in ("", ".", "..") else place


@cache
def _real_folder(path: str) -> str:
    return os.path.realpath(path)


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  (Path.is_file raises for a name that is too long)
