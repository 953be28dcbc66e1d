"""Attacks on how the runs of several ranks begin. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.rank_runs.launched import STRATEGIES, assert_no_error, launched
from falsifiers.resume.runs import Model, own, settings
from falsifiers.support.scratch import scratch

UNTRAINED = 1e-30
"""A learning rate that changes no weight."""


class Noting(Model):
    """A model with a buffer of the rank that made it, and one that says whether it computes under autocast."""

    def __init__(self, rank: int) -> None:
        super().__init__(5, seed=rank + 1)
        self.register_buffer("scale", torch.full((3,), float(rank)))
        self.register_buffer("autocast", torch.tensor(0))

    def forward(self, tokens: Tensor) -> Tensor:
        self.autocast.fill_(int(torch.is_autocast_enabled("cpu")))
        return super().forward(tokens)


@given(strategy=STRATEGIES, ranks=st.integers(2, 3), dtype=st.sampled_from(["float32", "bfloat16"]))
@example(strategy="fsdp2", ranks=2, dtype="bfloat16")
def falsify_ranks_begin_with_the_student_of_rank_0(subject: Any, strategy: str, ranks: int, dtype: str) -> None:
    class Drawing(own(subject)):  # made for the subject
        def make_student(self) -> nn.Module:
            return Noting(self.place.rank)

    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, dtype=dtype, lr=UNTRAINED, max_steps=1, save_every=0)
        seen = launched(Drawing, chosen, ranks)
    where = f"{strategy}, {dtype}, {ranks} ranks"
    assert_no_error(where, seen)
    expected = {name: each for name, each in Noting(0).state_dict().items() if name not in ("forwards", "autocast")}
    for rank, each in enumerate(seen):
        wrong = [name for name in expected if not torch.equal(each.weights[name], expected[name])]
        assert not wrong, f"{where}: {wrong} on rank {rank} are not those that rank 0 made"
        autocast = bool(each.weights["autocast"])
        assert autocast is (dtype == "bfloat16"), f"{where}: rank {rank} computes under autocast: {autocast}"
