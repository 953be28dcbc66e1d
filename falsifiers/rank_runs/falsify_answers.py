"""Attacks on answers of callbacks that differ between ranks. Subjects: `pipeline.distill`, `ranks.agreement`."""

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer import Action

ANSWERS = st.sampled_from([Action.CONTINUE] * 4 + [Action.SKIP, Action.STOP])
STEPS = st.tuples(st.tuples(ANSWERS, ANSWERS, ANSWERS), st.sampled_from([None, None, 0, 1, 2]))
EPOCHS = st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=1, max_size=4)
"""Before each step of each epoch: the answers of three ranks, and the rank that is asked to stop, if one is."""


class Elsewhere(Tensor):
    """A tensor that is said to be on an accelerator; its memory is on the CPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answers = {Tensor.device.__get__: torch.device("xpu"), Tensor.is_cpu.__get__: False}
        if func is Tensor.to:  # a copy, which later changes of the original do not reach
            assert (kwargs or {}).get("non_blocking"), "a step waits for the device to copy the flags"
            return args[0].as_subclass(Tensor).clone()
        return answers[func] if func in answers else super().__torch_function__(func, types, args, kwargs)


class Ranks:
    """Ranks that call the same methods in turn; each reduction has the flags that all of them had before it."""

    def __init__(self, subject: Any, ranks: int, accelerator: bool) -> None:
        self.accelerator, self.summed = accelerator, torch.zeros(3, dtype=torch.int64)
        self.asked: int | None = None
        each = SimpleNamespace(world_size=ranks, sum_counts=lambda flags: self.summed)
        self.members = [subject.Agreement(each, lambda rank=rank: self.asked == rank) for rank in range(ranks)]

    def leave_out(self, answers: tuple[Action, ...], asked: int | None) -> list[bool]:
        self.asked = asked
        for member, answer in zip(self.members, answers, strict=False):
            carried_out = member.noted(answer)
            assert carried_out is Action.CONTINUE, f"a rank carries out {carried_out} before it has asked the others"
        self._sum()
        flags = self.summed.as_subclass(Elsewhere) if self.accelerator else self.summed
        left = [member.leaves_out(flags) for member in self.members]
        self.summed.fill_(9)  # memory that a later reduction uses again
        return left

    def leaving(self) -> list[bool]:
        return [member.is_leaving() for member in self.members]

    def agreed(self, **where: bool) -> list[Action]:
        self._sum()
        return [member.agreed(Action.CONTINUE, **where) for member in self.members]

    def _sum(self) -> None:
        self.summed = torch.tensor([member.flags() for member in self.members], dtype=torch.int64).sum(0)


@given(epochs=EPOCHS, ranks=st.sampled_from([2, 3]), accelerator=st.booleans())
def falsify_answers_are_carried_out_in_their_epoch(subject: Any, epochs: Any, ranks: int, accelerator: bool) -> None:
    """All ranks leave out the step after an answer, on an accelerator the next one; a SKIP ends with its epoch.

    A request to stop is known as early; the same answer is agreed on again within an epoch.
    """
    run = Ranks(subject, ranks, accelerator)
    assert not any(run.leaving()), "before a step, ranks are asked to stop"
    assert {each.answer for each in run.members} == {Action.CONTINUE}, "before a step, ranks have an answer"
    for epoch, steps in enumerate(epochs, start=1):
        known = [(Action.CONTINUE, None)] * accelerator  # before each step: that of an accelerator is read a step later
        strongest = Action.CONTINUE
        for step, (answers, asked) in enumerate(steps, start=1):
            strongest = max(strongest, *answers[:ranks])
            known.append((strongest, asked if asked is not None and asked < ranks else None))
            left = run.leave_out(answers, asked)
            due, requested = known[step - 1]
            place = "on an accelerator" if accelerator else "on the CPU"
            what = f"answers {epochs} of {ranks} ranks {place}: step {step} of epoch {epoch}"
            assert left == [due is not Action.CONTINUE] * ranks, f"{what} is left out: {left}; expected for {due!r}"
            leaving = run.leaving()
            assert all(each is (requested is not None) for each in leaving), f"{what}: leaving {leaving}"
            if due is not Action.CONTINUE:
                break
        within, ended = run.agreed(), run.agreed(between_epochs=True)
        assert within == ended == [strongest] * ranks, f"epoch {epoch} of {epochs}: {within}, then {ended}"
        if strongest is Action.STOP:
            return
