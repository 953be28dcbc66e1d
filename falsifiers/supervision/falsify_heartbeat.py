"""Attacks on heartbeats, and on runs that hang."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.resume.runs import STEPS, ended, settings
from falsifiers.support.acting import acting
from falsifiers.support.interruptions import in_child
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from reference_trainer import Callback, Lines, Settings, interrupts
from reference_trainer.storage.checkpoints import saved_steps

LIVES_S = 60.0
"""How long a process lives that nothing kills."""


@cache
def _ended_process() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


AGES = st.sampled_from([0.0, 3.0, 9.9, 10.1, 99.0])


@given(ages=st.dictionaries(st.integers(0, 2000), AGES, max_size=12))
def falsify_silent_ranks_are_found_by_the_age_of_their_beat(subject: Any, ages: dict[int, float]) -> None:
    """ages: of the beat of each rank. Its step is its number and one."""
    with scratch() as directory:
        for number, age in ages.items():
            beat = subject.Beat(pid=_ended_process(), born="1", step=number + 1, time=1000.0 - age)
            (directory / f"rank-{number}.json").write_text(json.dumps(asdict(beat)))
        (directory / "rank-x.json").write_text("not a beat")
        seen = sorted(beat.step for beat in subject.silent(subject.beats(directory), 1000.0, 10.0))
        expected = sorted(number + 1 for number, age in ages.items() if age > 10.0)
        assert seen == expected, f"of ranks with beats of the ages {ages} s, {seen} are silent; expected {expected}"
        killed = subject.kill_stale(directory)
        assert killed == [], f"of processes that have ended, {killed} are killed"
        left = sorted(path.name for path in directory.iterdir())
        assert not left, f"once a supervisor begins, {left} are left of an earlier one"


@contextmanager
def _ranks(subject: Any, directory: Path, count: int) -> Iterator[list[Any]]:
    """Yield the first beats of processes that were started one after another, at least two ticks of a clock apart."""
    found = list[Any]()
    try:
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                subject.Heart(directory / f"rank-{number}.json")
                time.sleep(LIVES_S)
                os._exit(0)
            found.append(_first_beat(subject, directory, pid))
            time.sleep(2 / os.sysconf("SC_CLK_TCK"))
        yield found
    finally:
        for beat in found:
            os.kill(beat.pid, signal.SIGKILL)
            os.waitpid(beat.pid, 0)


def _first_beat(subject: Any, directory: Path, pid: int) -> Any:
    while True:
        for beat in subject.beats(directory):
            if beat.pid == pid:
                return beat
        time.sleep(0.001)


@given(recycled=st.lists(st.booleans(), min_size=1, max_size=3))
def falsify_only_ranks_of_an_earlier_supervisor_are_killed(subject: Any, recycled: list[bool]) -> None:
    with scratch() as root:
        own, left = root / "own", root / "left"
        own.mkdir(), left.mkdir()
        with _ranks(subject, own, 1 + len(recycled)) as (earlier, *ranks):
            for number, (beat, is_recycled) in enumerate(zip(ranks, recycled, strict=True)):
                found = replace(beat, born=earlier.born) if is_recycled else beat
                (left / f"rank-{number}.json").write_text(json.dumps(asdict(found)))
            told = [beat.pid for beat in subject.kill_stale(left)]
            expected = [beat.pid for beat, is_recycled in zip(ranks, recycled, strict=True) if not is_recycled]
            assert told == expected, f"ranks {recycled} are other processes; {told} are killed, expected {expected}"
            for beat in ranks:
                wait = os.WEXITED | os.WNOWAIT | (0 if beat.pid in expected else os.WNOHANG)
                end = os.waitid(os.P_PID, beat.pid, wait)
                killed = end is not None and end.si_status == signal.SIGKILL
                assert killed == (beat.pid in expected), f"ranks {recycled} are other processes; {beat} ended as {end}"


HUNG_S = 12.0
"""How long the second step takes. The watchdog is asked for one second, and leaves within another one."""


class Stuck(Lines):
    """Lines of which that of the teacher's hundredth step is never written."""

    def write(self, line: str) -> None:
        if line.startswith("teacher: step"):
            threading.Event().wait(HUNG_S)
            raise RuntimeError("the line was written")


class Hanging(Callback):
    """Callback that waits for what never comes: before the first event, or in the second step."""

    def __init__(self, *, begins: bool) -> None:
        self.begins = begins

    def attach(self, pipeline: Any) -> None:
        if not self.begins:
            self.hang()

    def on_step_end(self, context: Any) -> None:
        if context.step == 2:
            self.hang()

    def hang(self) -> None:
        threading.Event().wait(HUNG_S)
        raise RuntimeError("the step ended")


def falsify_hung_run_ends(subject: Any) -> None:
    with scratch() as directory:
        _, result = ended(subject, settings(directory, "straight", hang_after=60))
        assert result.train.steps_completed == STEPS, f"a run that does not hang: {result.train}"

        for begins, since, hook in ((False, "its start", "attach"), (True, "on_step_end of step 2", "on_step_end")):

            def hung(begins: bool = begins) -> None:
                ended(subject, settings(directory, f"out-{begins}", hang_after=1), [Hanging(begins=begins)])

            _assert_left(hung, directory, f"-after 1: no progress of the student since {since}", hook)


def falsify_hung_training_of_a_teacher_ends(subject: Any) -> None:
    assert Settings().hang_after >= 1800, f"by default a step may take {Settings().hang_after} s"
    with scratch() as directory:

        def hung() -> None:
            chosen = small(directory, out=directory / "out", teacher_steps=100, hang_after=2.0)
            subject.distill(chosen, lines=Stuck())

        _assert_left(hung, directory, "no progress of the teacher since on_step_end of step 100", "on_step_end")


def _assert_left(work: Callable[[], None], directory: Path, line: str, hook: str) -> None:
    """Assert that the process leaves before the hook ends, and has written the stack of the thread that waits."""
    stderr = directory / "stderr"

    def hung() -> None:
        with stderr.open("wb") as file:
            os.dup2(file.fileno(), 2)
        work()

    said = in_child(hung)
    assert said == "", f"a run that hangs does not leave: {said}"
    stacks = stderr.read_text()
    assert "Timeout" in stacks and f"in {hook}\n" in stacks, f"standard error has no stack of {hook}: {stacks}"
    assert line in stacks, f"standard error does not say {line!r}: {stacks}"


@given(save_every=st.sampled_from([0, 1, 5000]), step=st.integers(1, 2))
def falsify_asked_run_has_saved_its_step(subject: Any, save_every: int, step: int) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "straight"))

        def asked() -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            interrupts.exit_at_once()  # as the command does first
            interrupts.raise_once()
            settings = small(directory, out=directory / "out").model_copy(update={"save_every": save_every})
            terminating = acting(lambda: os.kill(os.getpid(), signal.SIGTERM), "on_optimizer_step", step)
            try:
                run(subject, settings, callbacks=[terminating])
            except BaseException as error:
                (directory / "ended").write_text(type(error).__name__)

        said = in_child(asked)
        ended = (directory / "ended").read_text() if (directory / "ended").exists() else said
        expected = "StopRequestedError" if save_every else "KeyboardInterrupt"
        assert ended == expected, f"saved every {save_every} steps and asked in step {step}, the run ends with {ended}"
        seen = saved_steps(directory / "out" / "checkpoints", "student")
        wanted = list(range(1, step + 1)) if save_every == 1 else [step] if save_every else []
        assert seen == wanted, f"saved every {save_every} steps, asked in step {step}, {seen} are saved"
