"""Which pieces of a project a result depends on: what its worker imported, ran and read."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pv.engines.engine import Depends
from pv.engines.trial import Reads, Trial
from pv.results.reuse.tree import Tree
from pv.source.pieces import outermost

EVERYTHING = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a result comes from.

    trials: that of the claim, and that of the run which it read. depends_on: how much of their code counts. constants:
    Python files whose numbers and texts were tried as examples. functions: those that count although they did not run.
    """

    trials: tuple[Trial, ...]
    depends_on: Depends = Depends.FUNCTIONS
    constants: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


def dependencies(tree: Tree, source: Source, opened: Iterable[str]) -> set[str]:
    """Return the dependencies of a result. opened: the files that any process opened while its tasks ran."""
    if any(t.reads is None or t.reads.unsure for t in source.trials):
        return {EVERYTHING, *(each for trial in source.trials for each in _file_dependencies(trial))}
    found = {f"constants {name}" for name in source.constants}
    for trial in source.trials:
        if (reads := trial.reads) is not None:
            reads = replace(reads, functions=reads.functions | frozenset(source.functions))
            if source.depends_on is Depends.MODULES:
                reads = replace(reads, texts=frozenset(reads.loaded.values()))
            found.update(_of(tree, replace(trial, reads=reads), reads))
    unseen = (name for name in opened if not name.endswith(".py") and f"file {name}" not in found)
    return found | {f"opened {name}" for name in unseen}


def _file_dependencies(trial: Trial) -> Iterator[str]:
    """Yield what a trial read or asked about, of which no change of the code tells."""
    reads = trial.reads or Reads()
    yield from (f"file {name}" for name in {*trial.files, *reads.outside})
    yield from (f"entry {name}" for name in reads.looked)
    yield from (f"listed {folder}" for folder in reads.listed)
    yield from (f"metadata {folder}" for folder in reads.metadata)
    yield from (f"searched {json.dumps([folder, sorted(names)])}" for folder, names in reads.searched.items())


def _of(tree: Tree, trial: Trial, reads: Reads) -> Iterator[str]:
    in_pieces = {name for name in reads.loaded.values() if name not in reads.texts and tree.pieces(name)}
    yield from (f"import {name}" for name in in_pieces)
    yield from (each for each in _file_dependencies(trial) if each.removeprefix("file ") not in in_pieces)
    yield from (f"file {name}" for name in {*reads.loaded.values()} - in_pieces)
    yield from (f"module {name}" for name in reads.asked)
    yield from _functions(tree, reads, in_pieces)
    yield from _docs(tree, trial, reads, in_pieces)


def _functions(tree: Tree, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    for name in reads.functions:
        module, _, function = name.partition(":")
        file = reads.loaded.get(module, "")
        found = tree.pieces(file) if file in in_pieces else None
        if found is not None and (whole := outermost(function, found.functions)):
            yield f"function {file}:{whole}"


def _docs(tree: Tree, trial: Trial, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    """Yield the docstrings that code may read while it runs; those that libraries may show always count."""
    files = (name for name in {*in_pieces, *reads.loaded.values(), *trial.files} if name.endswith(".py"))
    known = [found for name in files if (found := tree.pieces(name)) is not None]
    reads_docs = reads.readers or any(found.reads_docs for found in known)
    yield from (f"{'docs' if reads_docs else 'shown-docs'} {name}" for name in in_pieces)
