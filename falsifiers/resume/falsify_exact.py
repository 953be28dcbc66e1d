"""Attacks on what a resumed run computes. The subject is `pipeline.distill`, or has its names."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.resume.runs import STEPS, Cut, assert_same_end, ended, resumed_to_the_end, settings
from falsifiers.support.acting import acting
from falsifiers.support.histories import assert_same_history, lines
from falsifiers.support.interruptions import ended_before
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import found
from reference_trainer import Action
from reference_trainer.errors import StopRequestedError
from reference_trainer.storage.checkpoints import saved_steps


@given(
    cuts=st.lists(st.integers(1, STEPS), min_size=1, max_size=3, unique=True),
    save_every=st.integers(1, 3),
    log_every=st.integers(1, 3),
    keep=st.integers(0, 2),
)
def falsify_cut_run_ends_like_the_straight_one(
    subject: Any, cuts: list[int], save_every: int, log_every: int, keep: int
) -> None:
    with scratch() as directory:
        every = {"save_every": save_every, "log_every": log_every, "keep": keep}
        straight = ended(subject, settings(directory, "straight", **every))
        cut = resumed_to_the_end(subject, directory, "cut", [Cut(*cuts)], **every)
        when = f"saved every {save_every} steps and cut after {sorted(cuts)}"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))


FIRST = (1, 1)
"""The batch that each run asks for once more, to count the operations of a step."""


NAMES: dict[str, Callable[[Path], Path]] = {
    "latest": lambda cut: Path("latest"),
    "relative": lambda cut: Path(os.path.relpath(cut)),
    "linked": lambda cut: _linked(cut.with_name("link"), cut),
}
"""How a checkpoint is named, by the directory of its run."""


def _linked(link: Path, target: Path) -> Path:
    if not link.exists():
        link.symlink_to(target, target_is_directory=True)
    return link


@given(
    limits=st.sets(st.integers(1, STEPS - 1), min_size=1, max_size=2),
    save_every=st.sampled_from([1, 2, 5000]),
    named=st.sampled_from(sorted(NAMES)),
)
@example(limits={3, 4}, save_every=5000, named="linked")
@example(limits={2, 5}, save_every=2, named="relative")
def falsify_limited_run_goes_on_like_the_straight_one(
    subject: Any, limits: set[int], save_every: int, named: str
) -> None:
    with scratch() as directory:
        asked, resume = [], None
        straight = ended(subject, settings(directory, "straight", save_every=save_every))
        for limit in (*sorted(limits), None):
            chosen = settings(directory, "cut", save_every=save_every, max_steps=limit, resume=resume, force=True)
            cut = ended(subject, chosen)
            asked += cut[0].batches.asked
            place = NAMES[named](directory / "cut")
            resume = place if named == "latest" else place / "checkpoints" / f"student-step{limit}"
        when = f"ended after {sorted(limits)} steps and saved every {save_every}, then resumed by a {named} name"
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        asked, expected = ([each for each in some if each != FIRST] for some in (asked, straight[0].batches.asked))
        assert asked == expected, f"{when}, the batches {asked} are asked for; expected {expected}"


@given(step=st.integers(1, STEPS - 1))
def falsify_run_forks_into_another_directory(subject: Any, step: int) -> None:
    with scratch() as directory:
        _, straight = ended(subject, settings(directory, "straight"))
        ended(subject, settings(directory, "short", max_steps=step))
        before = found(directory)
        path = directory / "short" / "checkpoints" / f"student-step{step}"
        _, fork = ended(subject, settings(directory, "fork", resume=path))
        when = f"forked after step {step}"
        assert_same(when, fork.student.state_dict(), straight.student.state_dict())
        expected = lines(directory, "straight")[step:]
        assert_same_history(f"{when}, the metrics file", lines(directory, "fork"), expected)
        after = found(directory)
        changed = [each for each in before if after.get(each) != before[each]]
        assert not changed, f"{when}, files of other runs are changed: {changed}"


@given(step=st.integers(1, STEPS), limit=st.integers(1, STEPS))
@example(step=3, limit=1)
def falsify_no_step_is_taken_beyond_the_limit(subject: Any, step: int, limit: int) -> None:
    limit = min(step, limit)
    with scratch() as directory:
        before, _ = ended(subject, settings(directory, "out", max_steps=step))
        resumed = settings(directory, "out", max_steps=limit, resume=Path("latest"), force=True)
        after, result = ended(subject, resumed)
        what = f"resumed after step {step} with a limit of {limit}"
        seen = [line["step"] for line in lines(directory, "out")]
        assert seen == list(range(1, step + 1)), f"{what}, the metrics file has the steps {seen}"
        taken = result.train.steps_completed
        assert taken == step, f"{what}, {taken} steps are reported; expected {step}"
        assert_same(what, after.student.state_dict(), before.student.state_dict())


@given(failure=st.sampled_from([RuntimeError, KeyboardInterrupt]), stopping=st.sampled_from([STEPS, 3, 5]))
@example(failure=RuntimeError, stopping=3)
def falsify_failure_after_the_training_loses_no_step(subject: Any, failure: type[BaseException], stopping: int) -> None:
    """The last evaluation fails: resumed, the run takes no step and ends like the straight one, also after a STOP."""
    failures = [failure("in the evaluation")]

    def measure(run: Any) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {}

    with scratch() as directory:
        answers = [acting(lambda: Action.STOP, step=stopping)]
        when = f"stopped after step {stopping}, with {failure.__name__} in the evaluation"
        straight = ended(subject, settings(directory, "straight", save_every=4), answers)
        try:
            ended(subject, settings(directory, "cut", save_every=4), answers, measure=measure)
        except (RuntimeError, KeyboardInterrupt) as error:
            newest = saved_steps(directory / "cut" / "checkpoints", "student")[-1:]
            assert newest == [stopping], f"{when}, the newest checkpoint is of {newest}"
            asked = failure is KeyboardInterrupt
            noted = any("--resume latest" in note for note in getattr(error, "__notes__", []))
            assert isinstance(error, StopRequestedError) == asked and noted != asked, f"{when}: {error!r}, {noted}"
        resumed = settings(directory, "cut", save_every=4, resume=Path("latest"))
        cut = ended(subject, resumed, answers, measure=measure)
        assert_same_end(when, directory, ("cut", cut), ("straight", straight))
        asked_for = [each for each in cut[0].batches.asked if each != FIRST]
        assert not asked_for, f"{when}, the batches {asked_for} are asked for again"


KILLS = 3


@given(seed=st.integers(0, 999))
def falsify_killed_run_ends_like_the_straight_one(subject: Any, seed: int) -> None:
    numbers = random.Random(seed)
    with scratch() as directory:
        straight = ended(subject, settings(directory, "straight"))
        for _ in range(KILLS):
            moment = numbers.randrange(3, 40)
            ended_as = ended_before(
                moment, directory / "cut", lambda: resumed_to_the_end(subject, directory, "cut", [], force=True)
            )
            assert ended_as in ("killed", "done"), f"killed before operation {moment}, the run ended with {ended_as}"
            if ended_as == "done":
                break
        cut = resumed_to_the_end(subject, directory, "cut", [], force=True)
        assert_same_end(f"killed with seed {seed}", directory, ("cut", cut), ("straight", straight))
        seen = [line["step"] for line in lines(directory, "cut")]
        assert seen == list(range(1, STEPS + 1)), f"killed with seed {seed}, the metrics file has the steps {seen}"
