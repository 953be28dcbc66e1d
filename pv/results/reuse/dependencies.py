"""Which pieces of a project a result depends on: what its worker imported, ran and read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pv.engines.kind import Depends
from pv.engines.trial import Reads, Trial
from pv.results.reuse.tree import Tree
from pv.source.pieces import outermost

EVERYTHING = "everything"
SHOW_DOCS = frozenset(("click", "pydantic"))


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
    """Return the dependencies of a result. opened: the files that any process of the validation opened."""
    if source.depends_on is Depends.PROJECT or any(t.reads is None or t.reads.unsure for t in source.trials):
        return {EVERYTHING}
    found = {f"file {name}" for name in opened if not name.endswith(".py")}
    found |= {f"constants {name}" for name in source.constants}
    for trial in source.trials:
        if (reads := trial.reads) is not None:
            reads = replace(reads, functions=reads.functions | frozenset(source.functions))
            if source.depends_on is Depends.MODULES:
                reads = replace(reads, texts=frozenset(reads.loaded.values()))
            found.update(_of(tree, reads, trial.files))
    return found


def _of(tree: Tree, reads: Reads, files: Iterable[str]) -> Iterator[str]:
    in_pieces = {name for name in reads.loaded.values() if name not in reads.texts and tree.pieces(name)}
    yield from (f"import {name}" for name in in_pieces)
    yield from (f"file {name}" for name in {*files, *reads.loaded.values()} - in_pieces)
    yield from (f"module {name}" for name in reads.asked)
    yield from (f"names {folder}" for folder in {*reads.listed, *map(_folder, in_pieces), "."})
    yield from _functions(tree, reads, in_pieces)
    yield from _docs(tree, reads, in_pieces)


def _functions(tree: Tree, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    for name in reads.functions:
        module, _, function = name.partition(":")
        file = reads.loaded.get(module, "")
        found = tree.pieces(file) if file in in_pieces else None
        if found is not None and (whole := outermost(function, found.functions)):
            yield f"function {file}:{whole}"


def _docs(tree: Tree, reads: Reads, in_pieces: set[str]) -> Iterator[str]:
    """Yield the docstrings that code may read while it runs."""
    known = [found for name in in_pieces if (found := tree.pieces(name)) is not None]
    if reads.readers - SHOW_DOCS or any(found.reads_docs for found in known):
        yield from (f"docs {name}" for name in in_pieces)
    elif reads.readers:
        yield from (f"shown-docs {name}" for name in in_pieces)


def _folder(name: str) -> str:
    return str(PurePosixPath(name).parent)
