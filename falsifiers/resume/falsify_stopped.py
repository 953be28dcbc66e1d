"""Attacks on runs that are stopped or rewound, and resumed."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.resume.runs import STEPS, assert_same_end, ended, settings
from falsifiers.support.histories import lines
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import found
from reference_trainer import Action, Callback
from reference_trainer.distillation.step import MetricSum
from reference_trainer.errors import StopRequestedError, TrainerError
from reference_trainer.storage.checkpoints import read_checkpoint, saved_steps


class Asked(Callback):
    """Callback that lets the run be asked to stop in some steps, `times` each, and answers SKIP to one."""

    def __init__(self, steps: list[int], times: int, skipped: int) -> None:
        self.left, self.skipped = dict.fromkeys(steps, times), skipped
        self.seen, self.ended = list[int](), 0

    def __call__(self) -> bool:
        asked = self.left.get(self.seen[-1], 0) > 0
        self.left[self.seen[-1]] = self.left.get(self.seen[-1], 0) - 1
        return asked

    def on_optimizer_step(self, context: Any) -> None:
        self.seen.append(context.step)

    def on_step_end(self, context: Any) -> Action | None:
        return Action.SKIP if context.step == self.skipped else None

    def on_train_end(self, context: Any) -> None:
        self.ended += 1


@given(
    stops=st.lists(st.integers(1, STEPS), min_size=1, max_size=3, unique=True),
    times=st.integers(1, 2),
    skipped=st.integers(0, 2),
    save_every=st.integers(1, 3),
    log_every=st.integers(1, 3),
    eval_every=st.integers(0, 2),
)
@example(stops=[1], times=2, skipped=0, save_every=2, log_every=1, eval_every=0)
@example(stops=[1], times=1, skipped=1, save_every=3, log_every=1, eval_every=2)
def falsify_stopped_run_is_saved_and_goes_on(
    subject: Any, stops: list[int], times: int, skipped: int, save_every: int, log_every: int, eval_every: int
) -> None:
    """Each leg ends after the step in which it is asked, saved; the last one ends like the straight run.

    A resumed leg may be asked again before it takes a step. Of the evaluated steps only the first is
    saved as the best.
    """
    with scratch() as directory:
        every = {
            "save_every": save_every,
            "log_every": log_every,
            "eval_every": eval_every,
            "best_metric": "eval/score",
        }
        quiet = Asked([], 0, skipped)
        straight = ended(subject, settings(directory, "straight", **every), [quiet], measure=_measured)
        stops = sorted(step for step in stops if step <= len(quiet.seen))
        asked, more = Asked(stops, times, skipped), {}
        for step in [step for step in stops for _ in range(times)]:
            _assert_leaves(subject, settings(directory, "cut", **every, **more), asked, step)
            more = {"resume": Path("latest")}
        cut = ended(subject, settings(directory, "cut", **every, **more, force=True), [asked], asked, _measured)
        when = f"saved every {save_every} steps and asked to stop {times} times in {stops}"
        legs = len(stops) * times + 1
        assert asked.ended == legs, f"{when}, on_train_end is called {asked.ended} times"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        steps = [line["step"] for line in lines(directory, "cut")]
        due = [step for step in asked.seen if step % log_every == 0 or (eval_every and step % eval_every == 0)]
        assert steps == due, f"{when}, the lines are of {steps}; expected {due}"


def _measured(run: Any) -> dict[str, Any]:
    return {"score": MetricSum(1.0, 1)}


def _assert_leaves(subject: Any, chosen: Any, asked: Asked, step: int) -> None:
    """Assert that the leg ends after `step` and its hooks, with a checkpoint of it."""
    try:
        ended(subject, chosen, [asked], asked, _measured)
    except StopRequestedError:
        there = saved_steps(chosen.out / "checkpoints", "student")
        assert asked.seen[-1:] == [step], f"asked to stop in step {step}, the run takes the steps {asked.seen}"
        assert there[-1:] == [step], f"asked to stop in step {step}, the run has checkpoints of {there}"
    else:
        raise AssertionError(f"asked to stop in step {step}, the run goes on to its end")


@given(step=st.none() | st.integers(1, STEPS), limit=st.integers(2, STEPS))
def falsify_rewound_run_ends_like_the_straight_one(subject: Any, step: int | None, limit: int) -> None:
    with scratch() as directory:
        start = None if step is None else min(step, limit)
        straight = ended(subject, settings(directory, "straight", keep=0))
        ended(subject, settings(directory, "cut", max_steps=limit, keep=0))
        place = directory / "cut" / "checkpoints"
        later = found(place)
        resume = {} if start is None else {"resume": place / f"student-step{start}"}
        cut = ended(subject, settings(directory, "cut", rewind=True, force=True, keep=0, **resume))
        when = f"rewound from {limit} to {start}"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        assert saved_steps(place, "student") == list(range(1, STEPS + 1)), f"{when}: {saved_steps(place, 'student')}"
        aside = place / "student-rewound-1"
        expected = list(range((start or 0) + 1, limit + 1))
        assert saved_steps(aside, "student") == expected, f"{when}, {saved_steps(aside, 'student')} are set aside"
        for each in expected:
            read_checkpoint(aside / f"student-step{each}")
        moved = {name: content for name, content in found(aside).items() if "/" in name}
        assert moved.items() <= later.items(), f"{when}, files were changed when they were set aside"


def _damage(place: Path) -> None:
    (place / "student-step1" / "rank-00000.safetensors").write_bytes(b"")


CASES: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "another seed": (lambda place: None, {"seed": 5}, "seed was 0 and is 5"),
    "a missing step": (lambda place: shutil.rmtree(place / "student-step1"), {}, "student-step1"),
    "a damaged step": (_damage, {}, "student-step1"),
}


def falsify_refused_rewind_moves_nothing(subject: Any) -> None:
    for kind, (change, others, words) in CASES.items():
        with scratch() as directory:
            ended(subject, settings(directory, "out", max_steps=3, keep=0))
            place = directory / "out" / "checkpoints"
            change(place)
            before = found(directory)
            chosen = settings(
                directory, "out", resume=place / "student-step1", rewind=True, force=True, keep=0, **others
            )
            assert_refused(kind, partial(ended, subject, chosen), words, kind=TrainerError)
            changed = sorted(set(before.items()) ^ set(found(directory).items()))
            assert not changed, f"{kind}: the run was refused, and changed {changed}"
