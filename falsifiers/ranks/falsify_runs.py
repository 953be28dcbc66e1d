"""Attacks on whole runs of several ranks: those of one process, with equal weights on every rank."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs_by_hand import Run, RunCase, assert_same_run, by_hand, real_run, run_cases
from reference_trainer.training.parallel import DataParallel

RANKS = st.sampled_from([2, 3])


def runs(subject: Any, case: RunCase, ranks: int) -> list[Run]:
    """Return the run of each rank; a micro-batch's sequences are dealt to the ranks in turn."""

    def work(rank: int) -> Run:
        return real_run(subject, case, rank=rank, ranks=ranks, wrapped=DistributedDataParallel, parallel=DataParallel)

    return run_ranks(ranks, work)


@given(case=run_cases(log_every=st.just(1)), ranks=RANKS)
def falsify_run_of_ranks_equals_one_process(subject: Any, case: RunCase, ranks: int) -> None:
    expected = by_hand(case)
    for rank, run in enumerate(runs(subject, case, ranks)):
        assert_same_run(run, expected, f"rank {rank} of {ranks}, ")


@given(case=run_cases(log_every=st.just(1)), ranks=RANKS)
def falsify_ranks_have_equal_weights(subject: Any, case: RunCase, ranks: int) -> None:
    first, *others = runs(subject, case, ranks)
    for rank, run in enumerate(others, start=1):
        for step, (own, other) in enumerate(zip(first.moments, run.moments, strict=True), start=1):
            assert torch.equal(own.weights, other.weights), (
                f"after step {step} the weights are {own.weights.tolist()} on rank 0 and {other.weights.tolist()} on "
                f"rank {rank} of {ranks}; expected equal bits"
            )
