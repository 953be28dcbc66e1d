"""Keeps workers for several validations in a row, so that their libraries are loaded once."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from pv.workers.pool import Pool


class Pools:
    """A context manager that holds one pool for each list of preloaded modules.

    Tasks that need other libraries get another fork server: a library may change others when it is imported.
    """

    def __init__(self, jobs: int, *, spawn: bool = False) -> None:
        self.jobs, self.spawn = jobs, spawn
        self._stack = ExitStack()
        self._made: dict[tuple[str, ...], Pool] = {}

    def __enter__(self) -> "Pools":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def pool(self, preload: Sequence[str]) -> AbstractContextManager[Pool]:
        """Return the pool of these modules; leaving its context keeps it for the next validation."""
        made = self._made.get(tuple(preload))
        if made is None:
            made = self._stack.enter_context(Pool(list(preload), self.jobs, spawn=self.spawn))
            self._made[tuple(preload)] = made
        return nullcontext(made)
