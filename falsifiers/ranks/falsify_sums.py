"""Attacks on the sums over ranks: exact, over the module's group, with the arguments unchanged."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from falsifiers.support.ranks import run_ranks

COUNTS = st.lists(st.integers(0, 2**60), min_size=1, max_size=3)
SUMS = st.lists(st.integers(-(2**50), 2**50).map(float), min_size=1, max_size=3)
GROUPS = st.sampled_from([(2, ((0, 1),)), (3, ((0, 1, 2),)), (3, ((0, 2), (1,)))])


@given(counts=COUNTS, sums=SUMS, groups=GROUPS)
def falsify_sums_are_exact(
    subject: Any, counts: list[int], sums: list[float], groups: tuple[int, tuple[tuple[int, ...], ...]]
) -> None:
    ranks, members = groups

    def work(rank: int) -> Any:
        made = [dist.new_group(list(each)) for each in members]
        mine = next(n for n, each in enumerate(members) if rank in each)
        with mock.patch.dict(os.environ, {"LOCAL_RANK": str(rank + 5)}):
            parallel = subject.DataParallel(DistributedDataParallel(nn.Linear(1, 1), process_group=made[mine]))
        given_K = torch.tensor(counts) + rank, torch.tensor(sums, dtype=torch.float64) + rank
        kept = [each.clone() for each in given_K]
        summed = parallel.sum_counts(given_K[0]), parallel.sum_metrics(given_K[1])
        unchanged = all(torch.equal(a, b) for a, b in zip(given_K, kept, strict=True))
        described = parallel.rank, parallel.local_rank, parallel.world_size, parallel.gradient_factor
        return described, *summed, unchanged

    for rank, (described, count_sums, metric_sums, unchanged) in enumerate(run_ranks(ranks, work)):
        group = next(each for each in members if rank in each)
        place = (group.index(rank), rank + 5, len(group), float(len(group)))
        assert described == place and type(described[3]) is float, (
            f"rank, local_rank, world_size and gradient_factor are {described}; expected {place} in {group}"
        )
        wanted_counts = [sum(count + other for other in group) for count in counts]
        wanted_sums = [sum(each + other for other in group) for each in sums]
        assert (count_sums.dtype, count_sums.tolist()) == (torch.int64, wanted_counts), (
            f"rank {rank} of {group}: the sums are {count_sums}; expected {wanted_counts}, int64"
        )
        assert (metric_sums.dtype, metric_sums.tolist()) == (torch.float64, wanted_sums), (
            f"rank {rank} of {group}: the sums are {metric_sums}; expected {wanted_sums}, float64"
        )
        assert unchanged, f"rank {rank}: the arguments were overwritten by the sums"
