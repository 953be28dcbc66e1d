"""Record the files and folders that a process reads or probes, because its results depend on them."""

import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, wraps

# Imported by name: code under test may replace functions such as `os.getcwd`, which `Path` calls.
from os import getcwd, listdir, lstat, readlink, stat
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from pv.instrument.readers import IMPORTING, METADATA, PACKAGE, is_harmless, reader
from pv.source.project import is_cache, is_installed

OVERWRITES = os.O_WRONLY | os.O_TRUNC | os.O_EXCL
"""Flags with which `open` cannot read the previous content of a file."""
NATIVE_EVENTS = {"ctypes.dlopen": 0, "sqlite3.connect": 0, "import": 1, "cpython.run_file": 0}
"""The audit events of files that native code opens, with the index of the file name in the arguments.

The file name of an import event is None unless the module is an extension.
"""
DESCRIPTORS = "/proc/self/fd"
LIST_EVENTS = ("os.listdir", "os.scandir")
EXISTENCE_EVENTS = ("os.mkdir", "os.rmdir", "os.remove")
"""The audit events of functions that succeed or fail depending on whether a file or folder exists."""
PROBES = ("stat", "lstat", "access", "readlink")
"""The functions of `os` that probe a file without opening it; Python raises no audit event for them."""
SYSTEM_FOLDERS = (sys.prefix, sys.base_prefix, "/usr", "/lib", "/bin", "/etc", "/proc", "/sys", "/dev", str(PACKAGE))
"""Folders of installed packages and of the system: results depend on versions, not on these files."""


class FilesRead:
    """Records the files and folders that this process reads or probes from now on, and the files of loaded modules.

    Args:
        root: The folder of the project.
        scratch: The temporary folder of the workers, on which no result depends.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root, self._scratch = root, str(scratch)
        self._opened, self._loaded = set(loaded_files()), loaded_packages()
        self._texts = set[str]()
        self._listed = set[str]()
        self._metadata = set[str]()
        self._searched: dict[str, set[str]] = {}
        self._probed = set[str]()
        sys.addaudithook(self._record_event)
        _call_before(linecache, "getlines", self._record_text)
        for name in PROBES:
            _call_before(os, name, self._record_probe)
        _call_before(importlib.machinery.FileFinder, "find_spec", self._record_search)

    def _record_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record the audit event of a file or folder that is opened, listed, created or removed."""
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, str | bytes) and not (flags or 0) & OVERWRITES:
                self._opened.update(_absolute_paths(os.fsdecode(path), mode))
                self._record_text(path)
            # With O_EXCL, `open` fails if the file exists, so the result depends on whether it exists.
            elif isinstance(path, str | bytes) and flags & os.O_EXCL:
                self._record_probe(path)
        elif event in LIST_EVENTS:
            path, module = arguments[0] or ".", reader()
            if isinstance(path, str | bytes | os.PathLike) and (module == IMPORTING or not is_harmless(module)):
                folders = self._metadata if module.startswith(METADATA) else self._listed
                folders.update(_absolute_paths(os.fsdecode(path), ""))
        elif event in EXISTENCE_EVENTS:
            self._record_probe(arguments[0])
        elif event in NATIVE_EVENTS and isinstance(path := arguments[NATIVE_EVENTS[event]], str | bytes | os.PathLike):
            self._opened.update(_absolute_paths(_path_of_uri(os.fsdecode(path)), ""))

    def _record_text(self, path: str | bytes, *_: object, **__: object) -> None:
        if os.fsdecode(path).endswith(".py") and not is_harmless(reader()):
            self._texts.update(_absolute_paths(os.fsdecode(path), ""))

    def _record_probe(self, path: object, *_: object, **__: object) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            self._probed.update(_absolute_paths(os.fsdecode(path), ""))

    def _record_search(self, finder: importlib.machinery.FileFinder, name: str, *_: object, **__: object) -> None:
        self._searched.setdefault(finder.path, set()).add(name)

    def opened(self) -> tuple[list[str], list[str]]:
        """Return the files that were read, and the opened paths that are not files, as paths below the root.

        If a module was loaded from cached bytecode, the path of its source is returned. If a file was read through a
        link, the paths of the link and of the file are returned, since either may change.
        """
        names = self._inside(self._opened)
        files = [path for path, name in names.items() if _is_file(name)]
        return files, sorted(names.keys() - files)

    def texts(self) -> list[str]:
        """Return the Python files whose text was read, except to load a module or to print its lines."""
        return [path for path, name in self._inside(self._texts).items() if _is_file(name)]

    def listed(self) -> list[str]:
        """Return the folders whose entries were read, except to find a module or the metadata of packages."""
        return [path for path, name in self._inside(self._listed).items() if _is_folder(name)]

    def metadata(self) -> list[str]:
        """Return the folders whose entries were read to find the metadata of packages."""
        return [path for path, name in self._inside(self._metadata).items() if _is_folder(name)]

    def searched(self) -> dict[str, list[str]]:
        """Return the names of the modules that were looked up, by folder; only the last part of a dotted name.

        For a folder of `sys.path`, even one that does not exist yet, return all top-level modules that were looked up
        in any folder or were loaded before the recording began: a file added to this folder could provide each of them.
        """
        # Copy first, because other threads may import modules meanwhile.
        searched = {folder: list(names) for folder, names in list(self._searched.items())}
        names_by_folder: dict[str, set[str]] = {}
        for folder, names in searched.items():
            for path in self._inside([folder]):
                names_by_folder.setdefault(path, set()).update(name.rpartition(".")[2] for name in names)
        packages = _packages(name for names in searched.values() for name in names)
        entries = [path for entry in sys.path if isinstance(entry, str) for path in _absolute_paths(entry, "")]
        for path in self._inside(entries):
            names_by_folder.setdefault(path, set()).update(packages, self._loaded)
        return {path: sorted(filter(_is_name, names)) for path, names in names_by_folder.items()}

    def probed(self) -> list[str]:
        """Return the paths that code probed without opening them, such as with `os.stat`."""
        return list(self._inside(self._probed))

    def outside(self) -> list[str]:
        """Return the files outside the project that were read, except files of the system and installed packages."""
        opened = {_normal_path(name) for name in self._opened.copy() if name.startswith("/")}
        excluded = tuple(f"{folder}/" for folder in (*SYSTEM_FOLDERS, self._scratch, str(self._root)))
        outside = (name for name in opened if not (name.startswith(excluded) or is_installed(name)) and _is_file(name))
        return sorted(os.path.relpath(name, self._root) for name in outside)

    def _inside(self, names: Iterable[str]) -> dict[str, str]:
        """Return the names that are below the root: absolute paths by their paths relative to the root, sorted.

        A link has two entries: its own path, and the path of the file that it points to.
        """
        # Strings, because creating a thousand Path objects takes a tenth of the time of a short trial.
        root = f"{self._root}".rstrip("/") + "/"
        sources = {_source_path(name if name.startswith("/") else f"{root}{name}") for name in {*names}}
        paths = {path for source in sources for path in (_normal_path(source), _real_path(source))}
        inside = ((path[len(root) :] or ".", path) for path in sorted(paths) if f"{path}/".startswith(root))
        return {relative: path for relative, path in inside if not self._is_ignored(relative)}

    def _is_ignored(self, path: str) -> bool:
        """Return whether a path below the root is in an installed package, or in a cache such as `.pytest_cache`."""
        top, rest, _ = path.partition("/")
        return is_installed(f"/{path}") or (bool(rest) and _is_cache(self._root / top))


def _call_before(owner: object, name: str, record: Callable[..., None]) -> None:
    """Replace the function `name` of a module or class: the new one calls `record`, then the original function.

    `record` gets the positional arguments of the call, and a path or module name that is given by keyword. It is not
    called if there are none.
    """
    function = getattr(owner, name)

    @wraps(function)
    def recorded(*arguments: object, **keywords: object) -> object:
        named = [keywords[key] for key in ("path", "filename", "fullname") if key in keywords]
        if arguments or named:
            record(*arguments, *named)
        return function(*arguments, **keywords)

    setattr(owner, name, recorded)
    # Functions such as `shutil.rmtree` search these sets for the functions of `os`.
    for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if function in supported:
            supported.add(recorded)


def _is_name(text: str) -> bool:
    """Return whether a text can be the name of a module file."""
    return text.isprintable() and "/" not in text


@cache
def _is_cache(folder: Path) -> bool:
    """Return whether a folder is a hidden cache of a tool."""
    return folder.name.startswith(".") and is_cache(folder)


@cache
def loaded_files() -> frozenset[str]:
    """Return the files of the loaded modules, except modules of pv and of installed packages.

    The result is cached, so that a fork server computes it once. Computing it in a fork would copy memory pages of
    every module.
    """
    return frozenset(file for name, file in _modules() if not (is_installed(file) or _is_pv_module(name)))


@cache
def loaded_packages() -> frozenset[str]:
    """Return the top-level names of the loaded modules, except builtin modules. Cached like `loaded_files`."""
    return _packages(sys.modules)


def _packages(modules: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in modules).difference(sys.builtin_module_names)


def _modules() -> Iterator[tuple[str, str]]:
    """Yield the name and the file of every loaded module that has a file."""
    # With `vars`, because `getattr` may call the `__getattr__` of a module, which may import other modules.
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if file:
            yield name, file


def _is_pv_module(name: str) -> bool:
    """Return whether a module belongs to pv, or is `__main__`. Every result depends on the version of pv anyway."""
    return name.partition(".")[0] in ("pv", "__main__")


def _path_of_uri(name: str) -> str:
    """Return the path in a `file:` URI, with which SQLite databases can be named; return another name unchanged."""
    if name.startswith("file:"):
        with suppress(ValueError):  # `name` is not a URI
            name = unquote(urlsplit(name).path)
    return name.partition("\0")[0]  # a file name cannot contain a NUL character


def _absolute_paths(path: str, mode: str | None) -> Iterable[str]:
    """Return the absolute paths that `path` may mean.

    Only a relative path that `os.open` opens (`mode` is None) may have several: it may be relative to any open folder
    (`dir_fd`), which the audit event does not contain.
    """
    if path.startswith("/"):
        return (path,)
    folders = [*_working_directory(), *(_open_paths() if mode is None else ())]
    return [f"{folder}/{path}" for folder in folders]


def _working_directory() -> Iterator[str]:
    """Yield the working directory, unless it was removed."""
    with suppress(OSError):
        yield getcwd()  # noqa: PTH109  (Path.cwd calls a function that code under test may replace)


def _open_paths() -> Iterator[str]:
    """Yield the paths of all open file descriptors."""
    with suppress(OSError):
        for number in listdir(DESCRIPTORS):  # noqa: PTH208  (as for getcwd)
            with suppress(OSError):  # the descriptor that `listdir` opened is closed by now
                target = readlink(f"{DESCRIPTORS}/{number}")  # noqa: PTH115  (as for getcwd)
                if target.startswith("/"):  # not a pipe or a socket
                    yield target


def _source_path(path: str) -> str:
    """Return the path of the source if `path` is its cached bytecode, else `path`."""
    with suppress(ValueError):
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    return path


@cache
def _real_path(path: str) -> str:
    """Return the path with all links resolved."""
    # The path of the folder is cached too, because many files are in the same folder.
    folder, _, name = path.rpartition("/")
    path = f"{_real_folder(folder or '/').rstrip('/')}/{name}"
    if name in ("", ".", "..") or S_ISLNK(_mode(path, lstat)):
        return os.path.realpath(path)
    return path


@cache
def _real_folder(path: str) -> str:
    return os.path.realpath(path)


def _normal_path(path: str) -> str:
    # `normpath` is slow, and most paths need no change.
    return os.path.normpath(path) if "/." in path or "//" in path or path.endswith("/") else path


def _is_file(path: str) -> bool:
    return S_ISREG(_mode(path, stat))


def _is_folder(path: str) -> bool:
    return S_ISDIR(_mode(path, stat))


def _mode(path: str, probe: Callable[[str], os.stat_result]) -> int:
    """Return the mode of the file or folder at a path, 0 if there is none. The call is not recorded.

    Args:
        path: The path.
        probe: The original `os.stat` or `os.lstat`.
    """
    try:
        return probe(path).st_mode
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return 0
