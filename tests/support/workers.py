"""Fork servers that the validations of one pytest process share: a start takes a second, and with torch three."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import pytest

from pv.workers.launch import environment
from pv.workers.pool import Pool

MAX_SERVERS = 3
"""Number of servers that stay open."""
ALWAYS = ("pv.engines.equation.attack", "hypothesis.strategies", "subprocess")
OF_TORCH = ("torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data")
"""Parts of torch that take long to load, for every server that loads torch."""


def packages(preload: Sequence[str]) -> tuple[str, ...]:
    """Return the installed packages of a list of modules: a worker loads all other modules in milliseconds."""
    roots = {name.partition(".")[0] for name in preload} - sys.stdlib_module_names - {"pv"}
    return tuple(sorted(root for root in roots if find_spec(root) is not None))


class SharedPools:
    """Return an idle pool of the same packages and environment variables, or else a new one."""

    def __init__(self) -> None:
        self.pools: dict[tuple[object, ...], Pool] = {}

    def pool(self, preload: Sequence[str], jobs: int, *, spawn: bool = False) -> AbstractContextManager[Pool]:
        if spawn:
            return Pool(list(preload), jobs, spawn=True)
        # A server has its packages loaded and its environment fixed when it starts, so both are part of the key.
        key = (packages(preload), *sorted(environment("").items()))
        pool = self.pools.pop(key, None)
        if pool is not None and (pool.running or pool.pending or pool.suspects):  # an interrupted validation left tasks
            pool.__exit__()
            pool = None
        pool = self.pools[key] = pool or Pool([*preload, *ALWAYS, *(OF_TORCH if "torch" in key[0] else ())], jobs)
        # The number of workers is read when a task starts, so that it may change between validations.
        pool.jobs = jobs
        for path in pool.work.iterdir():  # runs that claims of an earlier validation shared
            if path.is_dir():
                shutil.rmtree(path)
        self.close(MAX_SERVERS)
        return nullcontext(pool)

    def close(self, keep: int = 0) -> None:
        """Close all pools but the last `keep` ones that were used."""
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
        for module in ("pv.execution.mutants", "pv.workers.pool"):
            patch.setattr(f"{module}.Pool", shared_pools.pool)
        yield
