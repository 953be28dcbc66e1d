"""Attacks on errors that a run raises later than they occur. The subject is that of `falsify_objective`."""

import math
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.callbacks.real_run import recording_callbacks
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.errors import LogitsError
from reference_trainer.plan.schedule import Schedule
from reference_trainer.training.state import UpdateOptions

TOKENS = torch.tensor([[0, 1, 2], [2, 1, 0]])
PLACE = (1, 0)
"""Where the broken logits of the teacher are."""


class BreakingTeacher:
    """A teacher whose logits are NaN at `PLACE` in its forward number `broken`, from 1."""

    vocab_size = 3

    def __init__(self, broken: int) -> None:
        self.broken, self.forwards = broken, 0

    def logits(self, batch: Batch) -> Tensor:
        self.forwards += 1
        logits = torch.arange(18, dtype=torch.float64).reshape(2, 3, 3).cos()
        logits[PLACE] = math.nan if self.forwards == self.broken else logits[PLACE]
        return logits


def _run(
    subject: Any,
    steps: int,
    every: int,
    broken: int,
    *,
    fused: bool = True,
    deferred: bool | None = True,
    accumulation: int = 1,
) -> tuple[list[Tensor], LogitsError | None]:
    """Return the weights after each step, and the error. broken: the forward with NaN, of `accumulation` a step."""
    table, weights = nn.Embedding(3, 3, _weight=torch.zeros(3, 3, dtype=torch.float64)), list[Tensor]()

    optimizer = torch.optim.AdamW(table.parameters(), lr=0.1, fused=fused)

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            weights.append(table.weight.detach().clone())
            assert not hasattr(optimizer, "found_inf"), "the optimizer is left set to leave out later updates"

    try:
        subject.train(
            BreakingTeacher(broken),
            ModuleStudent(table, 3),
            lambda epoch, k: Batch(tokens=TOKENS, labels=TOKENS),
            optimizer,
            schedule=Schedule(
                epochs=1,
                steps_per_epoch=steps,
                log_every=every,
                accumulation=accumulation,
                micro_batches=steps * accumulation,
            ),
            objective=subject.Objective(temperature=2.0, ce_weight=0.5, kd_weight=0.5),
            learning_rate=lambda step: 0.1,
            callbacks=recording_callbacks(1, act),
            options=UpdateOptions(deferred=deferred),
        )
    except LogitsError as error:
        return weights, error
    return weights, None


def _at(accumulation: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.just(accumulation), st.integers(1, accumulation))


@given(
    steps=st.integers(2, 8),
    every=st.integers(1, 9),
    broken=st.integers(1, 8),
    accumulated=st.integers(1, 3).flatmap(_at),
)
def falsify_a_broken_step_is_left_out_and_raised_when_read(
    subject: Any, steps: int, every: int, broken: int, accumulated: tuple[int, int]
) -> None:
    # accumulated: micro-batches of a step, and which of them is broken.
    accumulation, within = accumulated
    forward = (broken - 1) * accumulation + within
    weights, error = _run(subject, steps, every, forward, accumulation=accumulation)
    if broken > steps:
        assert error is None, f"a sound run of {steps} steps raised {error}"
        return
    read = min(-(-broken // every) * every, steps)
    assert error is not None, f"NaN in step {broken} of {steps} was not reported"
    said = " ".join([str(error), *error.__notes__])
    for words in (f"position {PLACE}", f"in step {broken},", f"after {read} of {steps} steps"):
        assert words in said, f"NaN in step {broken}, read at step {read}, says {said!r}; expected {words!r}"
    before = weights[broken - 2] if broken > 1 else torch.zeros(3, 3, dtype=torch.float64)
    after = weights[broken - 1] if len(weights) >= broken else before
    assert torch.equal(before, after), f"step {broken} changed the weights by {(after - before).abs().max()}"
    assert all(each.isfinite().all() for each in weights), "NaN reached the weights"


@given(
    steps=st.integers(2, 5),
    every=st.integers(1, 6),
    broken=st.integers(1, 5),
    settings=st.sampled_from([(True, None), (True, False), (False, True), (False, None)]),
)
def falsify_an_error_is_raised_at_once(
    subject: Any, steps: int, every: int, broken: int, settings: tuple[bool, bool | None]
) -> None:
    assume(broken <= steps)
    fused, deferred = settings
    weights, error = _run(subject, steps, every, broken, fused=fused, deferred=deferred)
    assert error is not None and len(weights) == broken - 1, (
        f"NaN in step {broken} of {steps}, fused={fused}, deferred={deferred}: it came after {len(weights)} steps"
    )
