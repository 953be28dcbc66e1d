"""Attacks on the answers of ranks between steps and epochs. The subject is `reference_trainer.training.agreement`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer.training.schedule import Action

ANSWERS = st.sampled_from([Action.CONTINUE] * 4 + [Action.SKIP, Action.STOP])
EPOCHS = st.lists(st.lists(st.tuples(ANSWERS, ANSWERS, ANSWERS), min_size=1, max_size=4), min_size=1, max_size=4)
"""The answers of three ranks before each step of each epoch."""


class Elsewhere(Tensor):
    """A tensor that is said to be on an accelerator; its memory is on the CPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answers = {Tensor.device.__get__: torch.device("xpu"), Tensor.is_cpu.__get__: False}
        return answers[func] if func in answers else super().__torch_function__(func, types, args, kwargs)


class Ranks:
    """Ranks that call the same methods in turn; each reduction has the flags that all of them had before it."""

    def __init__(self, subject: Any, accelerator: bool) -> None:
        self.accelerator, self.summed = accelerator, torch.zeros(3, dtype=torch.int64)
        each = SimpleNamespace(world_size=3, sum_counts=lambda flags: self.summed)
        self.members = [subject.Agreement(each, lambda: False) for _ in range(3)]

    def leave_out(self, answers: tuple[Action, ...]) -> list[bool]:
        for member, answer in zip(self.members, answers, strict=True):
            carried_out = member.noted(answer)
            assert carried_out is Action.CONTINUE, f"a rank carries out {carried_out} before it has asked the others"
        self._sum()
        flags = self.summed.as_subclass(Elsewhere) if self.accelerator else self.summed
        return [member.leaves_out(flags) for member in self.members]

    def end_epoch(self) -> list[Action]:
        self._sum()
        return [member.agreed(Action.CONTINUE, between_epochs=True) for member in self.members]

    def _sum(self) -> None:
        self.summed = torch.tensor([member.flags() for member in self.members], dtype=torch.int64).sum(0)


@given(epochs=EPOCHS, accelerator=st.booleans())
def falsify_answers_are_carried_out_in_their_epoch(subject: Any, epochs: Any, accelerator: bool) -> None:
    """All ranks leave out the step after an answer, on an accelerator the next one; a SKIP ends with its epoch."""
    ranks = Ranks(subject, accelerator)
    for epoch, steps in enumerate(epochs, start=1):
        known = [Action.CONTINUE] * accelerator  # before each step: that of an accelerator is read one step later
        strongest = Action.CONTINUE
        for step, answers in enumerate(steps, start=1):
            strongest = max(strongest, *answers)
            known.append(strongest)
            left, due = ranks.leave_out(answers), known[step - 1] is not Action.CONTINUE
            place = "on an accelerator" if accelerator else "on the CPU"
            what = f"answers {epochs} {place}: step {step} of epoch {epoch}"
            assert left == [due] * 3, f"{what} is left out by the ranks: {left}; expected {due}"
            if due:
                break
        ended = ranks.end_epoch()
        assert ended == [strongest] * 3, f"epoch {epoch} of {epochs} ends with {ended}; expected {strongest!r}"
        if strongest is Action.STOP:
            return
