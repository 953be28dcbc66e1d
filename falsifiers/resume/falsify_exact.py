"""Attacks on what a resumed run computes. The subject is `pipeline.distill`, or has its names."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.resume.runs import STEPS, Cut, assert_same_end, ended, resumed_to_the_end, settings
from falsifiers.support.histories import assert_same_history, lines
from falsifiers.support.interruptions import before_operations, in_child, kill
from falsifiers.support.small_runs import found
from reference_trainer import Action, Callback
from reference_trainer.errors import StopRequestedError
from reference_trainer.storage.checkpoint_files import saved_steps


@given(
    cuts=st.lists(st.integers(1, STEPS), min_size=1, max_size=3, unique=True),
    save_every=st.integers(1, 3),
    log_every=st.integers(1, 3),
    keep=st.integers(0, 2),
)
def falsify_cut_run_ends_like_the_straight_one(
    subject: Any, cuts: list[int], save_every: int, log_every: int, keep: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, every = Path(name).resolve(), {"save_every": save_every, "log_every": log_every, "keep": keep}
        straight = ended(subject, settings(directory, "straight", **every))
        cut = resumed_to_the_end(subject, directory, "cut", [Cut(*cuts)], **every)
        when = f"saved every {save_every} steps and cut after {sorted(cuts)}"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))


HOOKS = ["on_before_forward", "on_pre_optimizer_step", "on_log", "on_step_end"]


def answering(hook: str, step: int, action: Action, cut: bool) -> Callback:
    """Return a callback that answers to one hook of a step, and interrupts the first leg at the end of that epoch."""
    legs = [cut]

    def answer(self: Callback, context: Any) -> Action | None:
        return action if context.step == step else None

    def interrupt(self: Callback, context: Any) -> None:
        if legs.pop() if legs else False:
            raise KeyboardInterrupt

    return type("Answering", (Callback,), {hook: answer, "on_epoch_end": interrupt})()


@given(
    hook=st.sampled_from(HOOKS),
    step=st.integers(1, 3),
    action=st.sampled_from([Action.SKIP, Action.STOP]),
)
def falsify_answers_are_carried_out_after_resuming(subject: Any, hook: str, step: int, action: Action) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        straight = ended(subject, settings(directory, "straight"), [answering(hook, step, action, cut=False)])
        cut = resumed_to_the_end(subject, directory, "cut", [answering(hook, step, action, cut=True)])
        assert_same_end(f"{action.name} from {hook} of step {step}", directory, ("cut", cut), ("straight", straight))


FIRST = (1, 1)
"""The batch that each run asks for once more, to count the operations of a step."""


@given(limits=st.sets(st.integers(1, STEPS - 1), min_size=1, max_size=2), save_every=st.sampled_from([1, 2, 5000]))
@example(limits={3, 4}, save_every=5000)
def falsify_limited_run_goes_on_like_the_straight_one(subject: Any, limits: set[int], save_every: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, asked, resume = Path(name).resolve(), [], None
        straight = ended(subject, settings(directory, "straight", save_every=save_every))
        for limit in (*sorted(limits), None):
            chosen = settings(directory, "cut", save_every=save_every, max_steps=limit, resume=resume, force=True)
            cut = ended(subject, chosen)
            asked += cut[0].batches.asked
            resume = Path("latest")
        when = f"ended after {sorted(limits)} steps and saved every {save_every}, then resumed"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        asked, expected = ([each for each in some if each != FIRST] for some in (asked, straight[0].batches.asked))
        assert asked == expected, f"{when}, the batches {asked} are asked for; expected {expected}"


@given(step=st.integers(1, STEPS))
def falsify_skipped_data_are_not_produced(subject: Any, step: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        ended(subject, settings(directory, "cut", max_steps=step, log_every=0))
        path = directory / "cut" / "checkpoints" / f"student-step{step}"
        run, _ = ended(subject, settings(directory, "cut", resume=path, force=True, log_every=0))
        every = [(epoch, k) for epoch in (1, 2) for k in range(1, 8)]
        done = (step - 1) // 3 * 7 + min(3 * ((step - 1) % 3 + 1), 7)
        asked = run.batches.asked
        assert asked == every[done:], f"resumed after step {step}, {asked} are asked for; expected {every[done:]}"


@given(step=st.integers(1, STEPS - 1), linked=st.booleans())
def falsify_run_forks_into_another_directory(subject: Any, step: int, linked: bool) -> None:
    """Resumed from a path into another output, the run ends with the same weights, its own lines and its own files.

    Asked to stop at once, it has saved the step in its own output.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        _, straight = ended(subject, settings(directory, "straight"))
        ended(subject, settings(directory, "short", max_steps=step))
        before = found(directory)
        path = directory / "short" / "checkpoints" / ("student-latest" if linked else f"student-step{step}")
        try:
            ended(subject, settings(directory, "asked", resume=path), asked=lambda: True)
        except StopRequestedError:
            own = saved_steps(directory / "asked" / "checkpoints", "student")
            assert own == [step], f"forked after step {step} and asked to stop, the run has checkpoints of {own}"
            shutil.rmtree(directory / "asked")
        _, fork = ended(subject, settings(directory, "fork", resume=path))
        when = f"forked after step {step}"
        assert_same(when, fork.student.state_dict(), straight.student.state_dict())
        expected = lines(directory, "straight")[step:]
        assert_same_history(f"{when}, the metrics file", lines(directory, "fork"), expected)
        after = found(directory)
        changed = [each for each in before if after.get(each) != before[each]]
        assert not changed, f"{when}, files of other runs are changed: {changed}"


class Saves(Callback):
    """Callback that collects the steps of `on_save`."""

    def __init__(self) -> None:
        self.steps = list[int]()

    def on_save(self, context: Any) -> None:
        self.steps.append(context.step)


SPELLINGS: dict[str, Callable[[Path], Path]] = {
    "relative": lambda out: Path(os.path.relpath(out)),
    "through a link": lambda out: _linked(out),
    "with ..": lambda out: out / ".." / out.name,
}


def _linked(out: Path) -> Path:
    link = out.with_name("link")
    link.symlink_to(out, target_is_directory=True)
    return link


@given(step=st.integers(1, STEPS - 1), spelling=st.sampled_from(sorted(SPELLINGS)), output=st.booleans())
@example(step=2, spelling="through a link", output=True)
def falsify_any_path_of_a_checkpoint_resumes_its_run(subject: Any, step: int, spelling: str, output: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        straight = ended(subject, settings(directory, "straight"))
        ended(subject, settings(directory, "cut", max_steps=step))
        out = SPELLINGS[spelling](directory / "cut")
        path = Path("latest") if output else out / "checkpoints" / f"student-step{step}"
        chosen = settings(directory, "cut", resume=path, force=True)
        saves = Saves()
        cut = ended(subject, chosen.model_copy(update={"out": out}) if output else chosen, [saves])
        assert_same_end(f"resumed from a path {spelling}", directory, ("cut", cut), ("straight", straight))
        wanted = list(range(step, STEPS + 1))  # a callback may have missed the save before the cut
        assert saves.steps == wanted, f"resumed from a path {spelling}, on_save is called for the steps {saves.steps}"


@given(step=st.integers(1, STEPS), limit=st.integers(1, STEPS))
@example(step=3, limit=1)
def falsify_no_step_is_taken_beyond_the_limit(subject: Any, step: int, limit: int) -> None:
    limit = min(step, limit)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        before, _ = ended(subject, settings(directory, "out", max_steps=step))
        resumed = settings(directory, "out", max_steps=limit, resume=Path("latest"), force=True)
        after, result = ended(subject, resumed)
        what = f"resumed after step {step} with a limit of {limit}"
        seen = [line["step"] for line in lines(directory, "out")]
        assert seen == list(range(1, step + 1)), f"{what}, the metrics file has the steps {seen}"
        taken = result.train.steps_completed
        assert taken == step, f"{what}, {taken} steps are reported; expected {step}"
        assert_same(what, after.student.state_dict(), before.student.state_dict())


@given(
    save_every=st.sampled_from([0, 1, 4, 5000]),
    failure=st.sampled_from([RuntimeError, KeyboardInterrupt]),
    ending=st.none() | st.tuples(st.sampled_from(HOOKS), st.integers(1, STEPS), st.just(Action.STOP), st.just(False)),
)
@example(save_every=5000, failure=KeyboardInterrupt, ending=None)
@example(save_every=4, failure=RuntimeError, ending=("on_step_end", 3, Action.STOP, False))
@example(save_every=4, failure=RuntimeError, ending=("on_epoch_begin", 3, Action.STOP, False))
@example(save_every=4, failure=RuntimeError, ending=("on_epoch_begin", 0, Action.STOP, False))
@example(save_every=1, failure=RuntimeError, ending=("on_step_end", 1, Action.STOP, False))
@example(save_every=0, failure=RuntimeError, ending=None)
def falsify_failure_after_the_training_loses_no_step(
    subject: Any, save_every: int, failure: type[BaseException], ending: Any
) -> None:
    """The last evaluation fails: resumed, the run takes no step and ends like the straight one, also after a STOP.

    A run that saves nothing, or has taken no step, has nothing to go on from, and does not say so.
    """
    failures = [failure("in the evaluation")]

    def measure(run: Any) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {}

    with tempfile.TemporaryDirectory() as name:
        directory, answers = Path(name).resolve(), [] if ending is None else [answering(*ending)]
        when = f"saved every {save_every} steps and ended by {ending}, with {failure.__name__} in the evaluation"
        straight = ended(subject, settings(directory, "straight", save_every=save_every), answers)
        last = straight[1].train.steps_completed
        try:
            ended(subject, settings(directory, "cut", save_every=save_every), answers, measure=measure)
        except (RuntimeError, KeyboardInterrupt) as error:
            newest = saved_steps(directory / "cut" / "checkpoints", "student")[-1:]
            wanted = [last] if save_every and last else []
            assert newest == wanted, f"{when}, the newest checkpoint is of {newest}; expected {wanted}"
            _assert_says(when, error, failure, saved=bool(wanted))
            if not wanted:
                return
        resumed = settings(directory, "cut", save_every=save_every, resume=Path("latest"))
        cut = ended(subject, resumed, answers, measure=measure)
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        asked = [each for each in cut[0].batches.asked if each != FIRST]
        assert not asked, f"{when}, the batches {asked} are asked for again"


def _assert_says(when: str, error: BaseException, failure: type[BaseException], *, saved: bool) -> None:
    """Assert that an error after a saved step is the failure with a note, and an interrupt a request that is met."""
    notes = getattr(error, "__notes__", [])
    expected = StopRequestedError if saved and failure is KeyboardInterrupt else failure
    noted = any("--resume latest" in note for note in notes)
    assert type(error) is expected and noted == (saved and failure is RuntimeError), f"{when}: {error!r}, {notes}"


KILLS = 4


@given(seed=st.integers(0, 999))
def falsify_killed_run_ends_like_the_straight_one(subject: Any, seed: int) -> None:
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        straight = ended(subject, settings(directory, "straight"))
        for _ in range(KILLS):
            moment = numbers.randrange(3, 40)
            ended_as = in_child(lambda at=moment: _killed(subject, directory, at))
            assert ended_as in ("killed", "done"), f"killed before operation {moment}, the run ended with {ended_as}"
            if ended_as == "done":
                break
        cut = resumed_to_the_end(subject, directory, "cut", [], force=True)
        assert_same_end(f"killed with seed {seed}", directory, ("cut", cut), ("straight", straight))
        seen = [line["step"] for line in lines(directory, "cut")]
        assert seen == list(range(1, STEPS + 1)), f"killed with seed {seed}, the metrics file has the steps {seen}"


def _killed(subject: Any, directory: Path, moment: int) -> None:
    with before_operations(directory / "cut", lambda count: kill() if count == moment else None):
        resumed_to_the_end(subject, directory, "cut", [], force=True)
