"""Fork servers that the validations of one pytest process share: each start loads torch, which takes two seconds."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from pv.workers.launch import environment
from pv.workers.pool import Pool

MOST = 2
"""Servers that are kept at a time."""


class SharedPools:
    """Makes pools as `Pool` does, but gives an idle one of the same modules and variables again."""

    def __init__(self) -> None:
        self.pools: dict[tuple[object, ...], Pool] = {}

    def pool(self, preload: Sequence[str], jobs: int, *, spawn: bool = False) -> AbstractContextManager[Pool]:
        if spawn:
            return Pool(list(preload), jobs, spawn=True)
        key = (*preload, *sorted(environment("").items()))
        made = self.pools.pop(key, None)
        if made is not None and (made.live or made.pending or made.suspects):  # it was interrupted
            made.__exit__()
            made = None
        made = self.pools[key] = made or Pool(list(preload), jobs)
        made.jobs = jobs
        for path in made.work.iterdir():  # what claims of an earlier validation kept for each other
            if path.is_dir():
                shutil.rmtree(path)
        self.close(MOST)
        return nullcontext(made)

    def close(self, keep: int = 0) -> None:
        """Close all pools but the last ones that were used."""
        while len(self.pools) > keep:
            self.pools.pop(next(iter(self.pools))).__exit__()


@pytest.fixture(scope="session")
def shared_pools() -> Iterator[SharedPools]:
    shared = SharedPools()
    yield shared
    shared.close()


@pytest.fixture(scope="module", autouse=True)
def shared_workers(shared_pools: SharedPools) -> Iterator[None]:
    """Let the validations of a module share their servers; the folder's conftest imports this."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("pv.commands.validation.trials", "pv.mutation.trials"):
            patch.setattr(f"{module}.Pool", shared_pools.pool)
        yield
