"""Attacks on the gradient and the sums of several ranks: those of one process with one batch."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.ranks.group import windows
from falsifiers.support import oracles
from falsifiers.support.ranks import run_ranks
from falsifiers.support.windows import assert_gradients, hard_windows, models

RANKS = st.sampled_from([2, 3])


@given(model=models(), ranks=RANKS, dtype=st.sampled_from([torch.float64, torch.float32]))
def falsify_any_split_over_ranks_gives_the_gradient_of_the_whole(
    subject: Any, model: dict[str, Any], ranks: int, dtype: torch.dtype
) -> None:
    cases = hard_windows(model, ranks)
    for rank, results in enumerate(run_ranks(ranks, windows(subject, cases, dtype))):
        for case, seen in zip(cases, results, strict=True):
            what = f"rank {rank} of {ranks}, sequences by rank and micro-batch {case.split}"
            assert_gradients(what, seen.gradients, case.gradient(), case.allowed(dtype))
            own = sum(case.count(n) for micro_batch in case.split[rank] for n in micro_batch)
            counts, expected = (seen.count, seen.total, seen.sequences), (own, case.count(), case.sequences())
            assert counts == expected, f"{what}: own tokens, tokens, sequences are {counts}; expected {expected}"
            for name, nats in case.nats().items() if dtype is torch.float64 else ():
                oracles.assert_close(f"{what}: {name}", seen.sums[name], nats, case.allowed_nats(), "nats of all ranks")
