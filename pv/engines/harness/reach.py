"""Finds the code that a function reaches, and what it may reach through objects whose class is not known."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pv.engines.harness.modules import Definition
from pv.engines.harness.names import Names


@dataclass(frozen=True, slots=True)
class Reach:
    """The definitions that a function reaches, and those that it may reach through an object of unknown class."""

    sure: tuple[Definition, ...]
    maybe: tuple[Definition, ...] = ()

    @property
    def all(self) -> tuple[Definition, ...]:
        """Return both: an upper bound."""
        return (*self.sure, *self.maybe)


def reached(names: Names, path: Path, name: str) -> Reach:
    """Return what the function `name` of a file reaches."""
    sure = {*_surely(names, path, name)}
    return Reach(_in_order(sure), _in_order({*_at_most(names, sure)} - sure))


def reachable(names: Names, path: Path, name: str) -> Iterator[Definition]:
    """Yield what the function `name` of a file may reach as it is found, what is sure first, and again at the end."""
    sure = []
    for definition in _surely(names, path, name):
        sure.append(definition)
        yield definition
    yield from _at_most(names, sure)


def _surely(names: Names, path: Path, name: str) -> Iterator[Definition]:
    start = [d for m in names.modules if m.path == path for d in m.definitions if d.name == name and d.owner is None]
    return _closure(start, names.reached)


def _at_most(names: Names, sure: Iterable[Definition]) -> Iterator[Definition]:
    return _closure(sure, lambda definition: [*names.reached(definition), *names.maybe(definition)])


def _closure(start: Iterable[Definition], onward: Callable[[Definition], Iterable[Definition]]) -> Iterator[Definition]:
    reached: set[Definition] = set()
    todo = list(start)
    while todo:
        definition = todo.pop()
        if definition not in reached:
            reached.add(definition)
            yield definition
            todo += onward(definition)


def _in_order(definitions: Iterable[Definition]) -> tuple[Definition, ...]:
    return tuple(sorted(definitions, key=lambda d: (str(d.module.path), d.line)))
