"""The dependencies of a result: what its worker imported, ran and read, and what changed while it ran."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISDIR

from pv.engines.engine import Depends
from pv.engines.trial import Reads, Trial
from pv.results.reuse.tree import MISSING, Tree
from pv.source.pieces import outermost

EVERYTHING = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The trials and the code that a result comes from.

    Attributes:
        trials: The trial of the claim, and that of the run that it read if there is one.
        depends_on: How much of the code that they loaded counts.
        constants: Python files whose numbers and texts were tried as examples.
        functions: Functions that count although they did not run.
    """

    trials: tuple[Trial, ...]
    depends_on: Depends = Depends.FUNCTIONS
    constants: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


def dependencies(tree: Tree, source: Source, opened: Iterable[str]) -> set[str]:
    """Return the dependencies of a result, as `Tree` names them.

    If a worker could not tell all that it did, because it was killed or started a program that is not Python, the
    result depends on every file of the project.

    Args:
        tree: The current state of the project.
        source: The trials and the code that the result comes from.
        opened: The files that any process opened while the tasks of the result ran.
    """
    if any(t.reads is None or t.reads.unsure for t in source.trials):
        return {EVERYTHING, *(name for trial in source.trials for name in _file_dependencies(trial))}
    names = {f"constants {file}" for file in source.constants}
    for trial in source.trials:
        if (reads := trial.reads) is not None:
            reads = replace(reads, functions=reads.functions | frozenset(source.functions))
            if source.depends_on is Depends.MODULES:
                reads = replace(reads, texts=frozenset(reads.loaded.values()))
            names.update(_trial_dependencies(tree, replace(trial, reads=reads), reads))
    # Python files count by their pieces. Other files may have been opened in native code, which no trial records.
    unrecorded = (file for file in opened if not file.endswith(".py") and f"file {file}" not in names)
    return names | {f"opened {file}" for file in unrecorded}


def changed_since(tree: Tree, names: Iterable[str], moment_ns: int) -> bool:
    """Return whether any of these dependencies changed after `moment_ns`; a reader may have seen the old content."""
    names = {*names}
    if EVERYTHING in names and tree.newest() >= moment_ns:
        return True
    files = {_file_of(tree, name) for name in names} - {""}
    return any(_changed_at(tree.root / file) >= moment_ns for file in files)


def is_lost(depends: Mapping[str, str]) -> bool:
    """Return whether a file that a worker read no longer exists, so that its digest is unknown."""
    read = ("import ", "file ", "opened ")
    return any(digest == MISSING and name.startswith(read) for name, digest in depends.items())


def _file_dependencies(trial: Trial) -> Iterator[str]:
    """Yield the files that a trial read or probed; code digests do not cover these."""
    reads = trial.reads or Reads()
    yield from (f"file {name}" for name in {*trial.files, *reads.outside})
    yield from (f"entry {name}" for name in reads.looked)
    yield from (f"listed {folder}" for folder in reads.listed)
    yield from (f"metadata {folder}" for folder in reads.metadata)
    yield from (f"searched {json.dumps([folder, sorted(names)])}" for folder, names in reads.searched.items())


def _trial_dependencies(tree: Tree, trial: Trial, reads: Reads) -> Iterator[str]:
    """Yield the dependencies of one trial.

    A module that was only imported and called counts by pieces: the code that runs at import, the functions that ran,
    and its docstrings. A module whose source was read as text counts as a whole.
    """
    in_pieces = {name for name in reads.loaded.values() if name not in reads.texts and tree.pieces(name)}
    yield from (f"import {name}" for name in in_pieces)
    yield from (name for name in _file_dependencies(trial) if name.removeprefix("file ") not in in_pieces)
    yield from (f"file {name}" for name in {*reads.loaded.values()} - in_pieces)
    yield from (f"module {name}" for name in reads.asked)
    yield from _functions(tree, reads, in_pieces)
    yield from _docs(tree, trial, reads, in_pieces)


def _functions(tree: Tree, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    """Yield the functions that ran, a nested function as the outermost one that holds it."""
    for name in reads.functions:
        module, _, function = name.partition(":")
        file = reads.loaded.get(module, "")
        pieces = tree.pieces(file) if file in in_pieces else None
        if pieces is not None and (whole := outermost(function, pieces.functions)):
            yield f"function {file}:{whole}"


def _docs(tree: Tree, trial: Trial, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    """Yield the docstrings that code may read while it runs; those that libraries may show always count."""
    files = (name for name in {*in_pieces, *reads.loaded.values(), *trial.files} if name.endswith(".py"))
    modules = [pieces for name in files if (pieces := tree.pieces(name)) is not None]
    reads_docs = reads.readers or any(pieces.reads_docs for pieces in modules)
    yield from (f"{'docs' if reads_docs else 'shown-docs'} {name}" for name in in_pieces)


def _file_of(tree: Tree, dependency: str) -> str:
    """Return the file whose change may change a dependency, "" if there is no such file."""
    kind, _, rest = dependency.partition(" ")
    if kind == "function":
        return rest.rpartition(":")[0]
    if kind == "module":
        return tree.digest(dependency)
    return rest if kind in ("import", "file", "opened", "entry") else ""


def _changed_at(path: Path) -> int:
    """Return when a file changed, in nanoseconds since the epoch; 0 for a folder, and if nothing is there.

    The time of the change of its inode counts too: a file that is moved here keeps its time of modification. So does
    the link itself, if the path is one.
    """
    with suppress(OSError):
        states = (path.stat(), path.lstat())
        return max((max(s.st_mtime_ns, s.st_ctime_ns) for s in states if not S_ISDIR(s.st_mode)), default=0)
    return 0
