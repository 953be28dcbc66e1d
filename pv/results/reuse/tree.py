"""The current state of a project, piece by piece: what a result of an earlier validation is compared with."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.machinery import all_suffixes
from pathlib import Path
from stat import S_IFMT, S_ISREG
from typing import Any

from pv.source import resolve, syntax
from pv.source.digest import digest_data
from pv.source.pieces import Pieces, pieces
from pv.source.project import Project, is_cache

MISSING = "missing"
LARGE = 64 << 20
"""Files of at least this size, in bytes, are compared by size and times, without reading them."""
SETTLED_NS = 100_000_000
"""A file that changed more recently, in nanoseconds, may change again at what its file system says is the same time."""
METADATA = (".dist-info", ".egg-info", ".egg", "egg-info")
"""The ends of the names of metadata of packages, in small letters."""
Known = Callable[[str, Callable[[], Pieces]], Pieces]
"""Returns the pieces of the source with a digest, made by the function if they are not known."""


class Tree:
    """Digests of what a result can depend on. Each dependency is a text: its kind, a space, and a path or a name.

    import FILE: what runs when a module is imported. function FILE:NAME: the body of a function. docs FILE, shown-docs
    FILE, constants FILE: see `Pieces`. file PATH, opened PATH: the bytes of a file. listed FOLDER: all its names.
    metadata FOLDER: those of the metadata of packages. searched [FOLDER, NAMES], as JSON: the files in a folder from
    which modules of these names can be loaded. entry PATH: whether there is one, and of which kind and size. module
    NAME: the file that a module is loaded from. everything: all files and folders of the project.
    """

    def __init__(self, project: Project, known: Known) -> None:
        self.root = project.root
        self._project, self._known = project, known
        self._digests: dict[str, str] = {}
        self._pieces: dict[str, Pieces | None] = {}
        self._files: dict[str, tuple[tuple[int, ...], str]] = {}
        self._folders: dict[str, list[tuple[str, bool]] | None] = {}
        self._kinds: Mapping[str, Callable[[str], str]] = {
            "import": lambda name: self._piece(name, lambda found: found.at_import),
            "docs": lambda name: self._piece(name, lambda found: found.docs),
            "shown-docs": lambda name: self._piece(name, lambda found: found.shown_docs),
            "constants": lambda name: self._piece(name, lambda found: found.constants),
            "function": self._function,
            "file": self._file,
            "opened": lambda name: self.digest(f"file {name}"),
            "listed": self._listed,
            "metadata": self._metadata,
            "searched": self._searched,
            "entry": self._entry,
            "module": self._module,
            "everything": lambda _: self._everything,
        }

    def digest(self, dependency: str) -> str:
        """Return the current digest of a dependency; `MISSING` if there is no such thing."""
        if dependency not in self._digests:
            kind, _, rest = dependency.partition(" ")
            self._digests[dependency] = self._kinds[kind](rest)
        return self._digests[dependency]

    def pieces(self, name: str) -> Pieces | None:
        """Return the pieces of a Python file below the root; None if it is not Python."""
        if name not in self._pieces:
            self._pieces[name] = self._read(self._project.root / name)
        return self._pieces[name]

    def evidence(self) -> str:
        """Return the digest of the recorded evidence, on which reports depend and no trial does."""
        names = (os.path.relpath(path, self._project.root) for path in sorted(self._project.evidence.glob("*")))
        return digest_data({name: self._file(name) for name in names})

    def newest(self) -> int:
        """Return when a file of the project was changed last, in nanoseconds."""
        return max((max(s.st_mtime_ns, s.st_ctime_ns) for s in map(os.lstat, self._walk())), default=0)

    def _read(self, path: Path) -> Pieces | None:
        with suppress(OSError, UnicodeDecodeError, *syntax.UNREADABLE):
            source = resolve.source(path)
            digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
            return self._known(digest, lambda: pieces(source))
        return None

    def _piece(self, name: str, choose: Callable[[Pieces], str]) -> str:
        found = self.pieces(name)
        return MISSING if found is None else choose(found)

    def _function(self, name: str) -> str:
        file, _, function = name.rpartition(":")
        return self._piece(file, lambda found: found.functions.get(function, MISSING))

    def _file(self, name: str) -> str:
        """Return the digest of a file, read again only if it changed: to open it may look as if a claim did."""
        try:
            path = self._project.root / name
            state = path.stat()
            stamp = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            if (known := self._files.get(name)) is not None and known[0] == stamp:
                return known[1]
            digest = _digest(path)
            if time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) > SETTLED_NS:
                self._files[name] = stamp, digest
        except OSError:
            return MISSING
        return digest

    def _entries(self, folder: str) -> list[tuple[str, bool]] | None:
        """Return the names in a folder, and whether each is a folder; None if there is no such folder."""
        folder = os.path.normpath(folder)
        if folder not in self._folders:
            try:
                found = sorted((entry.name, entry.is_dir()) for entry in os.scandir(self._project.root / folder))
                self._folders[folder] = found
            except OSError:
                self._folders[folder] = None
        return self._folders[folder]

    def _listed(self, folder: str) -> str:
        if (found := self._entries(folder)) is None:
            return MISSING
        shown = [
            each for each in found if not (each[0].endswith((".pyc", "__pycache__")) or (each[0][0] == "." and each[1]))
        ]
        return digest_data(shown)

    def _metadata(self, folder: str) -> str:
        return digest_data([name for name, _ in self._entries(folder) or () if name.lower().endswith(METADATA)])

    def _searched(self, described: str) -> str:
        folder, modules = json.loads(described)
        return digest_data(self._modules(folder, {*modules}))

    def _modules(self, folder: str, modules: set[str]) -> list[Any]:
        """Return the entries of a folder from which one of the modules can be loaded."""
        found: list[Any] = []
        for name, is_folder in self._entries(folder) or ():
            if is_folder and name in modules:
                found.append([name, self._modules(f"{folder}/{name}", {"__init__"})])
            elif not is_folder and any(name.removesuffix(suffix) in modules for suffix in _suffixes(name)):
                found.append(name)
        return found

    def _entry(self, name: str) -> str:
        """Return what can be told of a path without opening it; the size of code says nothing."""
        path = self._project.root / name
        try:
            link = str(path.readlink()) if path.is_symlink() else ""
            state = path.stat()
        except OSError:
            return MISSING
        is_data = S_ISREG(state.st_mode) and not name.endswith(".py")
        return digest_data([S_IFMT(state.st_mode), link, state.st_size if is_data else 0])

    def _module(self, name: str) -> str:
        found = resolve.find_module(self._project, name)
        return MISSING if found is None else os.path.relpath(found, self._project.root)

    @cached_property
    def _everything(self) -> str:
        names = [str(path.relative_to(self._project.root)) for path in self._walk()]
        folders = [os.path.relpath(folder, self._project.root) for folder, _ in self._walk_folders()]
        for folder in folders:
            self._entries(folder)  # as they are now, before anything runs
        return digest_data([folders, {name: self._file(name) for name in names}])

    def _walk(self) -> Iterator[Path]:
        """Yield every file of the project, but for caches, environments, recorded evidence and bytecode of sources.

        Bytecode elsewhere is a module without a source.
        """
        for folder, files in self._walk_folders():
            is_cache = folder.name == "__pycache__"
            yield from (folder / name for name in sorted(files) if not (is_cache and name.endswith(".pyc")))

    def _walk_folders(self) -> Iterator[tuple[Path, list[str]]]:
        for folder, folders, files in os.walk(self._project.root):
            here = Path(folder)
            folders[:] = [name for name in sorted(folders) if self._counts(here / name)]
            yield here, files

    def _counts(self, folder: Path) -> bool:
        return folder != self._project.evidence and not is_cache(folder)


def _suffixes(name: str) -> list[str]:
    """Return the suffixes of modules with which a name ends: that of an extension module holds a shorter one."""
    return [suffix for suffix in all_suffixes() if name.endswith(suffix)]


def _digest(path: Path) -> str:
    """Return the digest of the bytes of a file; opening a pipe or a socket would wait for its other end."""
    stat = path.stat()
    if not S_ISREG(stat.st_mode):
        return digest_data([S_IFMT(stat.st_mode)])
    if stat.st_size >= LARGE:
        return digest_data([stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    return hashlib.sha256(path.read_bytes()).hexdigest()
