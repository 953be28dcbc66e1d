"""Attacks on whole runs of several ranks: those of one process, with equal weights on every rank."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs_by_hand import Run, RunCase, assert_same_run, by_hand, real_run, run_cases
from reference_trainer.ranks.parallel import DataParallel

RANKS = st.sampled_from([2, 3])


@given(case=run_cases(log_every=st.just(1)), ranks=RANKS)
def falsify_run_of_ranks_equals_one_process(subject: Any, case: RunCase, ranks: int) -> None:
    """A micro-batch's sequences are dealt to the ranks in turn."""

    def work(rank: int) -> Run:
        return real_run(subject, case, rank=rank, ranks=ranks, wrapped=DistributedDataParallel, parallel=DataParallel)

    runs, expected = run_ranks(ranks, work), by_hand(case)
    for rank, run in enumerate(runs):
        assert_same_run(run, expected, f"rank {rank} of {ranks}, ")
        for step, (first, own) in enumerate(zip(runs[0].moments, run.moments, strict=True), start=1):
            assert torch.equal(first.weights, own.weights), (
                f"after step {step} the weights are {first.weights.tolist()} on rank 0 and {own.weights.tolist()} on "
                f"rank {rank} of {ranks}; expected equal bits"
            )
