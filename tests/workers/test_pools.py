"""Validations in a row share a fork server for each list of modules, and leave nothing behind."""

from collections.abc import Callable

from pv.workers.live import Task
from pv.workers.pool import Pool
from pv.workers.pools import Pools
from pv.workers.tasks import Body


def run_task(pool: Pool) -> None:
    """Run a task, which starts the fork server of a pool."""
    body = Body(kind="device", root=".", roots=(), device="cuda")
    pool.submit(Task(key="", body=body, limit_s=60, memory_mib=4096))
    ((_, reply),) = pool.replies()
    assert reply.last("end") is not None


def test_the_same_modules_share_a_server_and_others_get_their_own(marked: Callable[[], list[int]]) -> None:
    with Pools(1) as pools:
        for preload, servers in ((["json"], 1), (["json"], 1), (["csv"], 2)):
            with pools.pool(preload) as pool:
                run_task(pool)
            assert len(marked()) == servers, f"after {preload}"
    assert marked() == []
