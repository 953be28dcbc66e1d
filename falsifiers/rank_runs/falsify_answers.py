"""Attacks on answers of callbacks that differ between ranks. Subjects: `pipeline.distill`, `ranks.agreement`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks.lifecycle import HOOKS, SILENT, Call, Lifecycle, Script, lifecycle
from falsifiers.rank_runs.launched import STRATEGIES, assert_no_error, launched
from falsifiers.resume.runs import STEPS, own, settings
from falsifiers.support.scratch import scratch
from reference_trainer import Action, Callback

PER_EPOCH = STEPS // 2
BEFORE_SAVE = ("on_before_forward", "on_after_backward", "on_pre_optimizer_step", "on_optimizer_step", "on_log")


def script(save_every: int, answers: tuple[str | None, ...] = ()) -> Script:
    """Return two epochs of three steps, the last of one micro-batch, logged and saved; answers: to each event."""
    return Script(2, PER_EPOCH, None, (answers,), 3, 1, (1, 0, save_every))


def answering(nth: int, answer: str | None, path: Path) -> Callback:
    """Return a callback that gives this answer to the nth event, from 0, and writes all events to a file at the end."""
    seen: list[Any] = []

    def hook(event: str) -> Any:
        def called(self: Any, context: Any) -> Any:
            seen.append([event, context.epoch, context.step, context.micro_batch])
            if event == "on_train_end":
                path.write_text(json.dumps(seen))
            return Action[answer] if answer is not None and len(seen) == nth + 1 else None

        return called

    return type("Answering", (Callback,), {event: hook(event) for event in HOOKS})()


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, list[str | None]]:
    """Draw the interval of checkpoints, an event that has answers, and the answer of each rank, not all None."""
    save_every = draw(st.sampled_from([0, 1]))
    calls = lifecycle(script(save_every)).calls
    nth = draw(st.sampled_from([n for n, call in enumerate(calls) if call.event not in SILENT]))
    answers = draw(st.lists(st.sampled_from([None, "SKIP", "STOP"]), min_size=2, max_size=3).filter(any))
    return save_every, nth, answers


def _nth(save_every: int, event: str, step: int) -> int:
    calls = lifecycle(script(save_every)).calls
    return next(n for n, call in enumerate(calls) if (call.event, call.step) == (event, step))


@given(strategy=STRATEGIES, case=cases())
@example(strategy="ddp", case=(0, _nth(0, "on_step_end", 1), [None, "STOP"]))
@example(strategy="ddp", case=(1, _nth(1, "on_log", 1), ["SKIP", None, "STOP"]))
@example(strategy="fsdp2", case=(0, _nth(0, "on_step_end", PER_EPOCH), [None, "SKIP"]))
def falsify_strongest_answer_of_any_rank_counts(
    subject: Any, strategy: str, case: tuple[int, int, list[str | None]]
) -> None:
    save_every, nth, answers = case
    strongest = next(answer for answer in ("STOP", "SKIP") if answer in answers)
    alone = lifecycle(script(save_every, (None,) * nth + (strongest,)))
    expected = _on_ranks(alone, lifecycle(script(save_every)).calls[nth], save_every)
    with scratch() as directory:
        chosen = settings(directory, "out", strategy=strategy, save_every=save_every)
        ended = launched(
            own(subject), chosen, len(answers), lambda rank: [answering(nth, answers[rank], directory / f"seen-{rank}")]
        )
        assert_no_error(f"{strategy}, {answers} to event {nth}", ended)
        for rank, each in enumerate(ended):
            where = f"{strategy}, {answers} to event {nth}, rank {rank}"
            seen = [tuple(call) for call in json.loads((directory / f"seen-{rank}").read_text())]
            assert seen == expected, f"{where}: the calls are {seen}; expected {expected}"
            result = each.result["steps_completed"], each.result["stopped"]
            assert result == (alone.steps, alone.stopped), f"{where}: {result}; one process: {alone.steps}"
            wrong = [key for key, tensor in ended[0].weights.items() if not torch.equal(each.weights[key], tensor)]
            assert not wrong, f"{where}: {wrong} differ from rank 0"


def _on_ranks(alone: Lifecycle, at: Call, save_every: int) -> list[tuple[Any, ...]]:
    """Return the calls of each rank: those of one process, and the begin of the step that an answer leaves out."""
    calls = [(call.event, call.epoch, call.step, call.micro_batch) for call in alone.calls]
    within = at.event in (*BEFORE_SAVE, "on_step_end") and at.step % PER_EPOCH != 0
    if within and not (save_every and at.event in BEFORE_SAVE):  # ranks agree on earlier answers when they save
        calls.insert(
            calls.index(("on_step_end", at.epoch, at.step, None)) + 1, ("on_step_begin", at.epoch, at.step + 1, None)
        )
    return calls


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
