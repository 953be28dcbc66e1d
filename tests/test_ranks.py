"""`falsifiers.support.ranks`: real processes, whose failures reach the caller and of which none is left."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from falsifiers.support.ranks import RankError, run_ranks


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Other tests of this process may have children of their own."""
    before = children()
    yield
    assert children() <= before


def summed(rank: int) -> float:
    value = torch.ones(400, 400) * rank
    torch.distributed.all_reduce(value)
    return float((value @ value)[0, 0])


def test_results_come_in_the_order_of_ranks_also_after_parallel_work_here() -> None:
    before = torch.ones(400, 400) @ torch.ones(400, 400)  # starts the threads of this process, which a fork lacks
    assert run_ranks(3, lambda rank: (rank, summed(rank))) == [(rank, 400 * 9.0) for rank in range(3)]
    assert float(before[0, 0]) == 400


def test_first_error_is_raised_and_the_other_ranks_do_not_wait() -> None:
    def work(rank: int) -> None:
        assert rank != 1, "this rank failed"
        torch.distributed.all_reduce(torch.ones(1))

    began = time.monotonic()
    with pytest.raises(AssertionError, match="this rank failed") as raised:
        run_ranks(2, work, limit_s=60)
    assert time.monotonic() - began < 30 and "in rank 1:" in raised.value.__notes__[0]


def test_crash_is_an_error() -> None:
    with pytest.raises(RankError, match="rank 1 crashed"):
        run_ranks(2, lambda rank: os.kill(os.getpid(), 9) if rank else None)


def test_rank_without_a_result_is_killed_at_the_limit() -> None:
    with pytest.raises(AssertionError, match=r"no result of ranks \[1\] of 2"):
        run_ranks(2, lambda rank: time.sleep(60 * rank), limit_s=3)
