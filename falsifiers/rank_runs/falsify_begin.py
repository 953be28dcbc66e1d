"""Attacks on how the runs of several ranks begin, and on evaluations that differ. The subject is `pipeline.distill`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.rank_runs.launched import Model, ended, launched, own, settings
from reference_trainer import MetricSum

STRATEGIES = st.sampled_from(["ddp", "fsdp2"])
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
@example(strategy="ddp", ranks=2, dtype="bfloat16")
@example(strategy="fsdp2", ranks=2, dtype="bfloat16")
def falsify_ranks_begin_with_the_student_of_rank_0(subject: Any, strategy: str, ranks: int, dtype: str) -> None:
    class Drawing(own(subject)):  # made for the subject
        def make_student(self) -> nn.Module:
            return Noting(self.place.rank)

    with tempfile.TemporaryDirectory() as name:
        chosen = settings(Path(name).resolve(), "out", strategy=strategy, lr=UNTRAINED, max_steps=1, save_every=0)
        seen = launched(Drawing, chosen.model_copy(update={"dtype": dtype}), ranks)
    expected = {name: each for name, each in Noting(0).state_dict().items() if name not in ("forwards", "autocast")}
    for rank, each in enumerate(seen):
        assert not each.error, f"{strategy}, rank {rank}: {each.error}"
        wrong = [name for name in expected if not torch.equal(each.weights[name], expected[name])]
        assert not wrong, f"{strategy}, {ranks} ranks: {wrong} on rank {rank} are not those that rank 0 made"
        autocast = bool(each.weights["autocast"])
        assert autocast is (dtype == "bfloat16"), (
            f"{strategy}, {dtype}: rank {rank} computes under autocast: {autocast}"
        )


@given(strategy=STRATEGIES, late=st.integers(0, 1))
def falsify_runs_of_one_program_follow_each_other(subject: Any, strategy: str, late: int) -> None:
    base = own(subject)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        given = {"strategy": strategy, "save_every": 0, "max_steps": 2}
        firsts = settings(directory, "first", **given)

        def second(chosen: Any, *, environment: dict[str, str], **others: Any) -> Any:
            first = ended(base, firsts, (), environment)
            assert not first.error, f"the first run: {first.error}"
            time.sleep(0.5 * (int(environment["RANK"]) == late))
            return base(chosen, environment=environment, **others)

        seen = launched(second, settings(directory, "second", **given), 2)
    errors = [each.error for each in seen]
    assert errors == ["", ""], f"{strategy}, rank {late} comes later to the second run: {errors}"


@given(rank=st.integers(1, 2), count=st.booleans(), every=st.integers(0, 1))
def falsify_evaluations_that_differ_are_refused(subject: Any, rank: int, count: bool, every: int) -> None:
    class Measuring(own(subject)):  # made for the subject
        def evaluate(self) -> dict[str, Any]:
            own_share = int(self.place.rank == rank)
            return {"accuracy": MetricSum(3.0 + own_share * (not count), 9 + own_share * count)}

    with tempfile.TemporaryDirectory() as name:
        seen = launched(Measuring, settings(Path(name).resolve(), "out", eval_every=every), 3)
    for number, each in enumerate(seen):
        named = each.error.startswith(f"RankError: rank {rank} differs from rank 0: accuracy")
        assert named, f"rank {rank} of 3 evaluates its share: rank {number} ends with {each.error!r}"
