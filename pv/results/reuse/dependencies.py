"""The dependencies of a result: the code and files that its worker used, with their digests in the current project."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.machinery import all_suffixes
from pathlib import Path
from stat import S_IFMT, S_ISDIR, S_ISREG

from pv.engines.engine import Depends
from pv.engines.trial import Reads, Trial
from pv.source import resolve, syntax
from pv.source.digest import digest_data
from pv.source.pieces import Pieces, outermost, pieces
from pv.source.project import Project, is_cache

EVERYTHING = "everything"
"""The dependency on all files and folders of the project."""
MISSING = "missing"
"""The digest of a dependency that does not exist."""
LARGE = 64 << 20
"""Files of at least this size, in bytes, are compared by size and times, without reading them."""
SETTLED_NS = 100_000_000
"""A modification time of at least this age, in nanoseconds, is trusted: while it stays the same, so does the file.

File systems round times, so two changes within a short time may get the same modification time.
"""
METADATA = (".dist-info", ".egg", "egg-info")
"""The endings of the names of files and folders with package metadata, in lower case."""
PiecesCache = Callable[[str, Callable[[], Pieces]], Pieces]
"""Takes the digest of a source and a function that parses the source; returns the stored or parsed pieces."""


class Tree:
    """Digests of the dependencies of results.

    A dependency is a text: its kind, a space, and a path below the root or a name. The kinds, with what is digested:

    - `import FILE`: the code that runs when a module is imported;
    - `function FILE:NAME`: the body of a function;
    - `docs FILE`, `shown-docs FILE`, `constants FILE`: see `Pieces`;
    - `file PATH`, `opened PATH`: the bytes of a file;
    - `listed FOLDER`: the names of the entries of a folder;
    - `metadata FOLDER`: the names of the package metadata in a folder;
    - `searched [FOLDER, NAMES]`, as JSON: the files and folders in a folder from which modules of these names can be
      loaded;
    - `entry PATH`: whether there is a file or folder, its kind, the target of a link, and the size of a file other than
      Python source;
    - `module NAME`: the file from which a module is loaded;
    - `everything`: all files and folders of the project.

    A digest is computed at its first use and stored. It does not follow later changes of the project.

    Args:
        project: The project.
        stored_pieces: Returns the pieces of a source, so that unchanged modules are not parsed again.
    """

    def __init__(self, project: Project, stored_pieces: PiecesCache) -> None:
        self.root = project.root
        self._project, self._stored_pieces = project, stored_pieces
        self._digests: dict[str, str] = {}
        self._pieces: dict[str, Pieces | None] = {}
        self._files: dict[str, tuple[tuple[int, ...], str]] = {}
        self._folders: dict[str, list[tuple[str, bool]] | None] = {}
        self._kinds: Mapping[str, Callable[[str], str]] = {
            "import": lambda name: self._piece(name, lambda module: module.at_import),
            "docs": lambda name: self._piece(name, lambda module: module.docs),
            "shown-docs": lambda name: self._piece(name, lambda module: module.shown_docs),
            "constants": lambda name: self._piece(name, lambda module: module.constants),
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
        """Return the digest of a dependency, computed at the first call; `MISSING` if it does not exist."""
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
        """Return the digest of the recorded evidence. Reports depend on the evidence, trials do not."""
        names = (os.path.relpath(path, self._project.root) for path in sorted(self._project.evidence.glob("*")))
        return digest_data({name: self._file(name) for name in names})

    def newest(self) -> int:
        """Return the time of the latest change of a project file, in nanoseconds since the epoch; 0 without files."""
        return max((_time_of_change(os.lstat(path)) for path in self._walk()), default=0)

    def _read(self, path: Path) -> Pieces | None:
        with suppress(OSError, UnicodeDecodeError, *syntax.UNREADABLE):
            source = resolve.source(path)
            digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
            return self._stored_pieces(digest, lambda: pieces(source))
        return None

    def _piece(self, name: str, choose: Callable[[Pieces], str]) -> str:
        """Return the digest that `choose` reads from the pieces of a Python file; `MISSING` without pieces."""
        module = self.pieces(name)
        return MISSING if module is None else choose(module)

    def _function(self, name: str) -> str:
        file, _, function = name.rpartition(":")
        return self._piece(file, lambda module: module.functions.get(function, MISSING))

    def _file(self, name: str) -> str:
        """Return the digest of a file.

        A file is read again only after a change, or if its last change was recent (see `SETTLED_NS`), because every
        read appears in the log of opened files, and this log does not tell a read by this method from a read by a
        claim.
        """
        try:
            path = self._project.root / name
            stat = path.stat()
            stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            stored_stamp, digest = self._files.get(name, ((), ""))
            if stored_stamp == stamp:
                return digest
            digest = _digest(path)
            if time.time_ns() - _time_of_change(stat) > SETTLED_NS:
                self._files[name] = stamp, digest
        except OSError:
            return MISSING
        return digest

    def _entries(self, folder: str) -> list[tuple[str, bool]] | None:
        """Return the entries of a folder as pairs (name, whether it is a folder); None if the folder does not exist."""
        folder = os.path.normpath(folder)
        if folder not in self._folders:
            try:
                entries = os.scandir(self._project.root / folder)
                self._folders[folder] = sorted((entry.name, entry.is_dir()) for entry in entries)
            except OSError:
                self._folders[folder] = None
        return self._folders[folder]

    def _listed(self, folder: str) -> str:
        """Return the digest of the entries of a folder, except bytecode and hidden folders, which tools create."""
        if (entries := self._entries(folder)) is None:
            return MISSING
        included = [
            (name, is_folder)
            for name, is_folder in entries
            if not name.endswith((".pyc", "__pycache__")) and not (name[0] == "." and is_folder)
        ]
        return digest_data(included)

    def _metadata(self, folder: str) -> str:
        return digest_data([name for name, _ in self._entries(folder) or () if name.lower().endswith(METADATA)])

    def _searched(self, search: str) -> str:
        folder, modules = json.loads(search)
        return digest_data(self._modules(folder, {*modules}))

    def _modules(self, folder: str, modules: set[str]) -> list[object]:
        """Return the entries of a folder from which one of the modules can be loaded."""
        entries: list[object] = []
        for name, is_folder in self._entries(folder) or ():
            if is_folder and name in modules:
                entries.append([name, self._modules(f"{folder}/{name}", {"__init__"})])
            elif not is_folder and any(name.removesuffix(suffix) in modules for suffix in _suffixes(name)):
                entries.append(name)
        return entries

    def _entry(self, name: str) -> str:
        """Return the digest of the kind, link and size of a path.

        The size of a Python file is left out, so that a changed comment does not change the digest: the code of the
        file is digested in pieces.
        """
        path = self._project.root / name
        try:
            link = str(path.readlink()) if path.is_symlink() else ""
            stat = path.stat()
        except OSError:
            return MISSING
        size = stat.st_size if S_ISREG(stat.st_mode) and not name.endswith(".py") else 0
        return digest_data([S_IFMT(stat.st_mode), link, size])

    def _module(self, name: str) -> str:
        file = resolve.find_module(self._project, name)
        return MISSING if file is None else os.path.relpath(file, self._project.root)

    @cached_property
    def _everything(self) -> str:
        names = [str(path.relative_to(self._project.root)) for path in self._walk()]
        folders = [os.path.relpath(folder, self._project.root) for folder, _ in self._walk_folders()]
        for folder in folders:
            self._entries(folder)  # store the entries before a claim can change them
        return digest_data([folders, {name: self._file(name) for name in names}])

    def _walk(self) -> Iterator[Path]:
        """Yield every file of the project, except caches, environments, recorded evidence and bytecode of sources.

        Bytecode outside `__pycache__` is included: it is a module without a source.
        """
        for folder, files in self._walk_folders():
            has_sources = folder.name != "__pycache__"
            yield from (folder / name for name in sorted(files) if has_sources or not name.endswith(".pyc"))

    def _walk_folders(self) -> Iterator[tuple[Path, list[str]]]:
        for folder, folders, files in os.walk(self._project.root):
            parent = Path(folder)
            # os.walk enters the folders that are left in this list.
            paths = [parent / name for name in sorted(folders)]
            folders[:] = [path.name for path in paths if path != self._project.evidence and not is_cache(path)]
            yield parent, files


def _suffixes(name: str) -> list[str]:
    """Return the module suffixes with which a name ends; several for an extension module: `.abi3.so` and `.so`."""
    return [suffix for suffix in all_suffixes() if name.endswith(suffix)]


def _digest(path: Path) -> str:
    """Return the digest of the bytes of a file."""
    stat = path.stat()
    if not S_ISREG(stat.st_mode):
        # Opening a pipe or a socket would wait for a process at its other end.
        return digest_data([S_IFMT(stat.st_mode)])
    if stat.st_size >= LARGE:
        return digest_data([stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The trials and the code that a result comes from.

    Attributes:
        trials: The trial of the claim, and the trial of the run that the claim read, if there is one.
        depends_on: The part of the loaded code on which the result depends.
        constants: Python files whose numbers and texts were tried as examples.
        functions: Functions that are dependencies although they did not run.
    """

    trials: tuple[Trial, ...]
    depends_on: Depends = Depends.FUNCTIONS
    constants: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


def dependencies(tree: Tree, source: Source, opened: Iterable[str]) -> set[str]:
    """Return the dependencies of a result, as `Tree` names them.

    If the record of a worker is incomplete, because the worker was killed or started a program that is not Python, the
    result depends on every file of the project.

    Args:
        tree: The current state of the project.
        source: The trials and the code that the result comes from.
        opened: The files that any process opened while the tasks of the result ran.
    """
    names = {f"constants {file}" for file in source.constants}
    for trial in source.trials:
        if trial.reads is None or trial.reads.unsure:
            files = (name for t in source.trials for name in _file_dependencies(t.files, t.reads or Reads()))
            return {EVERYTHING, *files}
        reads = replace(trial.reads, functions=trial.reads.functions | frozenset(source.functions))
        if source.depends_on is Depends.MODULES:
            reads = replace(reads, texts=frozenset(reads.loaded.values()))
        names.update(_trial_dependencies(tree, trial.files, reads))
    # Trials do not record files that native code opened. Python files are left out: their pieces are dependencies.
    unrecorded = (file for file in opened if not file.endswith(".py") and f"file {file}" not in names)
    return names | {f"opened {file}" for file in unrecorded}


def changed_since(tree: Tree, names: Iterable[str], moment_ns: int) -> bool:
    """Return whether a file changed at `moment_ns` or later, so that a worker may have read its old content.

    These are the files of `_file_of`; for the dependency `EVERYTHING`, all files of the project. Dependencies on the
    entries of a folder are not checked.
    """
    names = {*names}
    if EVERYTHING in names and tree.newest() >= moment_ns:
        return True
    files = {_file_of(tree, name) for name in names} - {""}
    return any(_changed_at(tree.root / file) >= moment_ns for file in files)


def is_lost(depends: Mapping[str, str]) -> bool:
    """Return whether a file that a worker read no longer exists, so that its digest is unknown."""
    read = ("import ", "file ", "opened ")
    return any(digest == MISSING and name.startswith(read) for name, digest in depends.items())


def _file_dependencies(files: Iterable[str], reads: Reads) -> Iterator[str]:
    """Yield the files and folders that a trial read or probed; code digests do not cover these."""
    yield from (f"file {name}" for name in {*files, *reads.outside})
    yield from (f"entry {name}" for name in reads.looked)
    yield from (f"listed {folder}" for folder in reads.listed)
    yield from (f"metadata {folder}" for folder in reads.metadata)
    yield from (f"searched {json.dumps([folder, sorted(names)])}" for folder, names in reads.searched.items())


def _trial_dependencies(tree: Tree, files: Iterable[str], reads: Reads) -> Iterator[str]:
    """Yield the dependencies of a trial, from its `files` and the record of its reads.

    A result depends on a module in pieces: on the code that runs at import, the functions that ran, and the docstrings.
    If the source of the module was read as text, the result depends on the whole file.
    """
    in_pieces = {name for name in reads.loaded.values() if name not in reads.texts and tree.pieces(name)}
    yield from (f"import {name}" for name in in_pieces)
    yield from (name for name in _file_dependencies(files, reads) if name.removeprefix("file ") not in in_pieces)
    yield from (f"file {name}" for name in {*reads.loaded.values()} - in_pieces)
    yield from (f"module {name}" for name in reads.asked)
    yield from _functions(tree, reads, in_pieces)
    yield from _docs(tree, files, reads, in_pieces)


def _functions(tree: Tree, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    """Yield the dependencies on functions that ran; for a nested function, the outermost function around it."""
    for name in reads.functions:
        module, _, function = name.partition(":")
        file = reads.loaded.get(module, "")
        pieces = tree.pieces(file) if file in in_pieces else None
        if pieces is not None and (whole := outermost(function, pieces.functions)):
            yield f"function {file}:{whole}"


def _docs(tree: Tree, files: Iterable[str], reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    """Yield the dependencies on docstrings: on all if code may read them at runtime, else on `Pieces.shown_docs`."""
    sources = (name for name in {*in_pieces, *reads.loaded.values(), *files} if name.endswith(".py"))
    modules = [pieces for name in sources if (pieces := tree.pieces(name)) is not None]
    reads_docs = reads.readers or any(pieces.reads_docs for pieces in modules)
    kind = "docs" if reads_docs else "shown-docs"
    yield from (f"{kind} {name}" for name in in_pieces)


def _file_of(tree: Tree, dependency: str) -> str:
    """Return the file whose content decides the digest of a dependency; "" if there is no such file."""
    kind, _, rest = dependency.partition(" ")
    if kind == "function":
        return rest.rpartition(":")[0]
    if kind == "module":
        return tree.digest(dependency)
    return rest if kind in ("import", "file", "opened", "entry") else ""


def _changed_at(path: Path) -> int:
    """Return when a file or the link at its path last changed, in nanoseconds since the epoch; 0 without a file."""
    with suppress(OSError):
        stats = (path.stat(), path.lstat())
        return max((_time_of_change(stat) for stat in stats if not S_ISDIR(stat.st_mode)), default=0)
    return 0


def _time_of_change(stat: os.stat_result) -> int:
    # A moved file keeps its mtime, but not its ctime.
    return max(stat.st_mtime_ns, stat.st_ctime_ns)
