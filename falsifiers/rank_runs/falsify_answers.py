"""Attacks on answers of callbacks that differ between the ranks of a run. The subject is `pipeline.distill`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

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
            own(subject),
            chosen,
            len(answers),
            lambda rank: [answering(nth, answers[rank], directory / f"seen-{rank}")],
        )
        assert_no_error(f"{strategy}, {answers} to event {nth}", ended)
        for rank, each in enumerate(ended):
            where = f"{strategy}, {answers} to event {nth}, rank {rank}"
            seen = [tuple(call) for call in json.loads((directory / f"seen-{rank}").read_text())]
            assert seen == expected, f"{where}: the calls are {seen}; expected {expected}"
            result = each.result["steps_completed"], each.result["stopped"]
            assert result == (alone.steps, alone.stopped), (
                f"{where}: {result}; one process: {alone.steps}, {alone.stopped}"
            )
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
