"""Validations in a row share a fork server for each list of modules, and leave nothing behind."""

from collections.abc import Callable

from pv.workers.live import Task
from pv.workers.pool import Pool
from pv.workers.pools import Pools
from pv.workers.tasks import Body


def server_of(pool: Pool) -> int:
    """Run a task, which starts the server, and return its process id."""
    body = Body(kind="device", root=".", roots=(), device="cuda")
    pool.submit(Task(key="", body=body, limit_s=60, memory_mib=4096))
    ((_, reply),) = pool.replies()
    assert reply.last("end") is not None
    launcher = pool._launcher
    assert launcher is not None and launcher.fileno() is not None
    return int(launcher.process.pid)  # type: ignore[attr-defined]  # a fork server has one process


def test_the_same_modules_share_a_server_and_others_get_their_own(marked: Callable[[], list[int]]) -> None:
    with Pools(1) as pools:
        servers = []
        for preload in (["json"], ["json"], ["csv"]):
            with pools.pool(preload) as pool:
                servers.append(server_of(pool))
        assert servers[0] == servers[1] != servers[2]
        assert set(servers) <= set(marked())
    assert marked() == []
