"""Attacks on the supervision of a run: heartbeats, hangs, signals, damaged checkpoints, and attempts until a step."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

from falsifiers.resume.runs import STEPS, run_to_end, settings
from falsifiers.support.assertions import assert_equal
from falsifiers.support.interruptions import in_child
from falsifiers.support.runs import acting, flip, reconfigure, run, scratch, small
from reference_trainer import Callback, Lines, interrupts
from reference_trainer.config.settings import Settings
from reference_trainer.errors import CheckpointError, DriftError
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.checkpoints import Manifest, save_checkpoint, saved_steps
from reference_trainer.storage.export import WEIGHTS, save_decoder
from reference_trainer.supervision import machines
from reference_trainer.supervision.decision import Ending, Verdict
from reference_trainer.supervision.heartbeat import Failure

LIFETIME_S = 60.0
"""Seconds after which a process exits if it is not killed."""


@cache
def _ended_process() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


@contextmanager
def _stopped_process() -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


AGES = st.sampled_from([0.0, 3.0, 9.9, 10.1, 99.0])


@given(ages=st.dictionaries(st.integers(0, 2000), AGES, max_size=12))
def falsify_silent_ranks_are_found_by_the_age_of_their_beat(subject: Any, ages: dict[int, float]) -> None:
    """ages: age of the beat in seconds, by rank. The step of a beat is the rank + 1; odd ranks are stopped."""
    with scratch() as directory, _stopped_process() as stopped:
        for number, age in ages.items():
            pid = stopped if number % 2 else _ended_process()
            beat = subject.Beat(pid=pid, born="1", step=number + 1, time=1000.0 - age)
            (directory / f"rank-{number}.json").write_text(json.dumps(asdict(beat)))
        (directory / "rank-x.json").write_text("not a beat")
        seen = sorted(beat.step for beat in subject.silent_beats(subject.beats(directory), 1000.0, 10.0))
        expected = sorted(number + 1 for number, age in ages.items() if age > (2.0 if number % 2 else 10.0))
        case = f"beats of the ages {ages} s, with a limit of 10 s, and of 2 s for the stopped odd ranks"
        assert_equal(f"steps of silent ranks, for {case}", seen, expected)
        assert_equal("processes killed that were born at another time", subject.kill_stale(directory), [])
        files = sorted(path.name for path in directory.iterdir())
        assert_equal("files of an earlier supervisor after kill_stale", files, [])


@contextmanager
def _ranks(subject: Any, directory: Path, count: int) -> Iterator[list[Any]]:
    """Yield the first beats of new processes.

    They start at least two clock ticks apart: the start time, in ticks, tells a process from another with the same id.
    """
    beats = list[Any]()
    try:
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                subject.Heart(directory / f"rank-{number}.json")
                time.sleep(LIFETIME_S)
                os._exit(0)
            while len(beats) <= number:
                beats += [beat for beat in subject.beats(directory) if beat.pid == pid]
                time.sleep(0.001)
            time.sleep(2 / os.sysconf("SC_CLK_TCK"))
        yield beats
    finally:
        for beat in beats:
            os.kill(beat.pid, signal.SIGKILL)
            os.waitpid(beat.pid, 0)


@given(recycled=st.lists(st.booleans(), min_size=1, max_size=3))
def falsify_only_ranks_of_an_earlier_supervisor_are_killed(subject: Any, recycled: list[bool]) -> None:
    with scratch() as root:
        beats, stale = root / "beats", root / "stale"
        beats.mkdir(), stale.mkdir()
        with _ranks(subject, beats, 1 + len(recycled)) as (earlier, *ranks):
            for number, (beat, is_recycled) in enumerate(zip(ranks, recycled, strict=True)):
                # With the start time of another process, the file is of an earlier process with the same id.
                written = replace(beat, born=earlier.born) if is_recycled else beat
                (stale / f"rank-{number}.json").write_text(json.dumps(asdict(written)))
            pids = [beat.pid for beat in subject.kill_stale(stale)]
            expected = [beat.pid for beat, is_recycled in zip(ranks, recycled, strict=True) if not is_recycled]
            assert_equal(f"killed processes, where process ids were reused: {recycled}", pids, expected)
            for beat in ranks:
                wait = os.WEXITED | os.WNOWAIT | (0 if beat.pid in expected else os.WNOHANG)
                status = os.waitid(os.P_PID, beat.pid, wait)
                killed = status is not None and status.si_status == signal.SIGKILL
                assert killed == (beat.pid in expected), f"reused {recycled}: process of {beat} ended with {status}"


HANG_S = 12.0
"""Seconds that a hanging call takes. The watchdog has a limit of 1 or 2 s, and must exit much earlier."""


class HangingLines(Lines):
    """Lines whose `write` hangs for the first line of the training of a teacher, after 100 steps."""

    def write(self, line: str) -> None:
        if line.startswith("teacher: step"):
            threading.Event().wait(HANG_S)
            raise RuntimeError("the line was written")


class Hanging(Callback):
    """Callback that hangs: in `on_step_end` of step 2 if `begins`, otherwise in `attach`, before the first event."""

    def __init__(self, *, begins: bool) -> None:
        self.begins = begins

    def attach(self, pipeline: Any) -> None:
        if not self.begins:
            self.hang()

    def on_step_end(self, context: Any) -> None:
        if context.step == 2:
            self.hang()

    def hang(self) -> None:
        threading.Event().wait(HANG_S)
        raise RuntimeError("the step ended")


def falsify_hung_run_ends(subject: Any) -> None:
    with scratch() as directory:
        _, result = run_to_end(subject, settings(directory, "uninterrupted", hang_after=60))
        assert result.train.steps_completed == STEPS, f"a run that does not hang: {result.train}; not {STEPS} steps"

        for begins, since, hook in ((False, "its start", "attach"), (True, "on_step_end of step 2", "on_step_end")):

            def hung(begins: bool = begins) -> None:
                run_to_end(subject, settings(directory, f"out-{begins}", hang_after=1), [Hanging(begins=begins)])

            _assert_exits(hung, directory, f"-after 1: no progress of the student since {since}", hook)


def falsify_hung_training_of_a_teacher_ends(subject: Any) -> None:
    assert Settings().run.hang_after >= 1800, f"default of hang_after: {Settings().run.hang_after} s; not >= 1800"
    with scratch() as directory:

        def hung() -> None:
            chosen = small(directory, out=directory / "out", teacher_steps=100, hang_after=2.0)
            subject.distill(chosen, lines=HangingLines())

        _assert_exits(hung, directory, "no progress of the teacher since on_step_end of step 100", "on_step_end")


def _assert_exits(work: Callable[[], None], directory: Path, line: str, hook: str) -> None:
    """Assert that the process exits before the hook returns, and has written the line and the stack of the hook."""
    stderr = directory / "stderr"

    def hung() -> None:
        # The stack is written to the file descriptor, so replacing sys.stderr would not catch it.
        with stderr.open("wb") as file:
            os.dup2(file.fileno(), 2)
        work()

    message = in_child(hung)
    assert message == "", f"the hanging process did not exit at once, but with: {message}"
    stacks = stderr.read_text()
    assert "Timeout" in stacks and f"in {hook}\n" in stacks, f"stderr has no stack of {hook}: {stacks}"
    assert line in stacks, f"stderr: {stacks}; expected {line!r}"


@given(save_every=st.sampled_from([0, 1, 5000]), step=st.integers(1, 2), is_warned=st.booleans())
@example(save_every=5000, step=1, is_warned=True)
@example(save_every=1, step=2, is_warned=False)
@example(save_every=0, step=1, is_warned=False)
def falsify_asked_run_has_saved_its_step(subject: Any, save_every: int, step: int, is_warned: bool) -> None:
    """is_warned: SIGUSR1 is sent 1.1 s before SIGTERM in the same step. Signals within one second count as one."""

    def send() -> None:
        if is_warned:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(1.1)
        os.kill(os.getpid(), signal.SIGTERM)

    with scratch() as directory:
        run(subject, small(directory, out=directory / "uninterrupted"))

        def run_with_signal() -> None:
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            interrupts.exit_at_once()  # as the command does at its start
            interrupts.raise_once()
            settings = small(directory, out=directory / "out").model_copy(update={"save_every": save_every})
            sender = acting(send, "on_optimizer_step", step)
            try:
                run(subject, settings, callbacks=[sender])
            except BaseException as error:
                (directory / "ended").write_text(type(error).__name__)

        message = in_child(run_with_signal)
        ended = (directory / "ended").read_text() if (directory / "ended").exists() else message
        expected = "StopRequestedError" if save_every else "KeyboardInterrupt"
        case = f"saved every {save_every} steps, SIGTERM in step {step}{' after SIGUSR1' * is_warned}"
        assert_equal(f"{case}, exception", ended, expected)
        seen = saved_steps(directory / "out" / "checkpoints", "student")
        assert_equal(f"{case}, saved steps", seen, {0: [], 1: list(range(1, step + 1))}.get(save_every, [step]))


RUN, RANK = "student", "rank-00000.safetensors"


def _save(out: Path, step: int) -> Path:
    manifest = Manifest(run_id=RUN, step=step, conditions={}, state={})
    return save_checkpoint(out / "checkpoints", manifest, {"w": torch.full((3,), float(step))})


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a truncated file": lambda path: os.truncate(path / RANK, 9),
    "a flipped bit": lambda path: flip(path / RANK),
    "a missing file": lambda path: (path / RANK).unlink(),
    "half a manifest": lambda path: os.truncate(path / "manifest.json", 40),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "another step's manifest": lambda path: reconfigure(path / "manifest.json", step=999),
}


@given(damages=st.lists(st.none() | st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=4), aside=st.integers(0, 3))
@example(damages=[None, "a flipped bit"], aside=3)
def falsify_newest_whole_checkpoint_is_found(subject: Any, damages: list[str | None], aside: int) -> None:
    """aside: number of earlier damaged checkpoints of the last step, which are already renamed."""
    with scratch() as directory:
        out = directory / "out"
        for step, damage in enumerate(damages, start=1):
            path = _save(out, step)
            if damage is not None:
                DAMAGES[damage](path)
        renamed = [f"{path.name}.damaged{number if number > 1 else ''}" for number in range(1, aside + 1)]
        for name in renamed:
            shutil.copytree(path, path.with_name(name))
        before, reports = _contents(out), list[str]()
        undamaged = [step for step, damage in enumerate(damages, start=1) if damage is None]
        try:
            seen: Any = subject.newest_undamaged_step(out, reports.append)
        except CheckpointError:
            seen = "refused"
        expected = undamaged[-1] if undamaged else "refused"
        assert_equal(f"with the damages {damages}, the newest undamaged step", seen, expected)
        assert _contents(out) == before, f"with the damages {damages}, a file was lost or changed; not only renamed"
        last_kept = undamaged[-1] if undamaged else 1
        seen = sorted(path.name for path in (out / "checkpoints").glob(f"{RUN}-step*"))
        steps = range(1, len(damages) + 1)
        names = [f"{RUN}-step{step}{'' if step <= last_kept else '.damaged'}" for step in steps]
        if aside and last_kept < len(damages):
            names[-1] += f"{aside + 1}"
        names = sorted([*names, *renamed])
        assert_equal(f"with the damages {damages}, the checkpoints", seen, names)
        assert_equal(f"with the damages {damages}, number of {reports}", len(reports), len(damages) - last_kept)


def _contents(out: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in out.rglob("*") if path.is_file() and not path.is_symlink())


MODELS: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda out: flip(out / WEIGHTS),
    "no weights": lambda out: (out / WEIGHTS).unlink(),
    "no manifest": lambda out: (out / "manifest.json").unlink(),
    "no result": lambda out: reconfigure(out / "manifest.json", result=None),
    "no number of steps": lambda out: reconfigure(out / "manifest.json", result={"steps_completed": "nine"}),
}


class Attempts:
    """A launcher whose attempt k makes `gains[k]` steps and fails; the attempt after these reaches the target."""

    def __init__(self, out: Path, gains: list[int], target: int) -> None:
        self.out, self.gains, self.target = out, gains, target
        self.calls: list[tuple[list[str], str]] = []
        self.step = 0

    def __call__(self, arguments: list[str], beats: Path, name: str) -> tuple[Ending, str]:
        assert beats.is_dir(), f"the directory {beats} for heartbeats does not exist"
        self.calls.append((list(arguments), name))
        beat = {"pid": _ended_process(), "born": "1", "step": self.step, "time": time.monotonic()}
        (beats / "rank-0.json").write_text(json.dumps(beat))  # as a rank that was killed leaves it
        gain = self.gains[len(self.calls) - 1] if len(self.calls) <= len(self.gains) else self.target
        self.step = min(self.step + gain, self.target)
        if gain and not (self.out / "checkpoints" / f"{RUN}-step{self.step}").exists():
            _save(self.out, self.step)
        if gain < self.target:
            return Ending.FAILED, "killed"
        _export(self.out, self.target)
        return Ending.FINISHED, "ended"


def _export(out: Path, steps: int, **content: Any) -> None:
    out.mkdir(exist_ok=True)
    decoder = new_decoder(DecoderConfig(vocab_size=4, layers=1, width=16, heads=1), 0)
    save_decoder(decoder, out, {"result": {"steps_completed": steps}, **content})


TARGET = 9


def _until(
    subject: Any, chosen: Settings, run: Attempts, step: int | None = TARGET, retries: int = 3, idle: int = 2
) -> Any:
    """Return the verdict of a supervised run."""
    limits = subject.Limits(step=step, max_retries=retries, max_idle=idle, silent_s=60.0)
    return subject.until(chosen, ["--seed", "3"], limits, launch=run, report=lambda line: None)


@given(
    gains=st.lists(st.integers(0, 4), max_size=4),
    retries=st.integers(0, 5),
    idle=st.integers(1, 3),
    older=st.sampled_from([0, 3, TARGET]),
    alone=st.booleans(),
)
def falsify_attempts_resume_until_the_step_is_reached(
    subject: Any, gains: list[int], retries: int, idle: int, older: int, alone: bool
) -> None:
    """older: step of an earlier model, 0 for none; not progress of this run. alone: whether it has no checkpoint."""
    with scratch() as directory:
        out = directory / "out"
        if older:
            _export(out, older)
        if older and not alone:
            _save(out, older)
        run = Attempts(out, gains, TARGET)
        run.step = 0 if alone else older
        verdict = _until(subject, Settings(out=out, save_every=1), run, retries=retries, idle=idle)
        model = f"a model of step {older} {'alone' if alone else 'and its checkpoint'}"
        when = f"with {retries} retries, {idle} idle attempts, gains {gains} and {model}"
        if older == TARGET:
            assert_equal(f"{when}, verdict and attempts", (verdict, run.calls), (Verdict.DONE, []))
        else:
            at = 0 if alone else older
            for number, (arguments, _) in enumerate(run.calls):
                options = ["--resume", "latest"] if at else []
                options += ["--force"] if at or number else []
                expected = ["distill", "--seed", "3", "--max-steps", str(TARGET), *options]
                assert_equal(f"{when}, arguments of attempt {number + 1}", arguments, expected)
                at += [*gains, TARGET][number] if number <= len(gains) else 0
            outcome = verdict.name, len(run.calls)
            assert_equal(f"{when}, verdict and number of attempts", outcome, _expected_outcome(gains, retries, idle))
        names = [name for _, name in run.calls]
        assert len(set(names)) == len(names), f"{when}, names of attempts: {names}; expected different names"
        files = sorted(path.name for path in out.parent.iterdir() if path != out)
        assert_equal(f"{when}, files beside the output", files, [])


def _expected_outcome(gains: list[int], retries: int, idle: int) -> tuple[str, int]:
    """Return the name of the verdict, and the number of attempts."""
    idle_attempts = 0
    for number, gain in enumerate(gains, start=1):
        idle_attempts = 0 if gain else idle_attempts + 1
        if idle_attempts >= idle:
            return "NO_PROGRESS", number
        if number > retries:
            return "RETRIES_SPENT", number
    return "DONE", len(gains) + 1


@given(
    errors=st.lists(st.sampled_from(["input", "other rank", "A", "B", "kill"]), min_size=1, max_size=4),
    step=st.integers(0, 3),
    moves=st.booleans(),
)
@example(errors=["input"], step=0, moves=False)
@example(errors=["A", "kill", "A", "A"], step=2, moves=False)
@example(errors=["A", "A", "other rank"], step=2, moves=True)
@example(errors=["A", "B", "kill", "kill"], step=0, moves=False)
def falsify_errors_that_stay_are_not_tried_again(subject: Any, errors: list[str], step: int, moves: bool) -> None:
    """Every attempt makes progress, and fails.

    errors: error by attempt. Rank 1 writes it, and rank 0 writes that another rank failed. With "other rank", both
    ranks write that; with "kill", no rank writes an error.
    moves: whether every attempt fails one step later than the attempt before.
    """
    with scratch() as directory:
        out, calls, lines = directory / "out", list[str](), list[str]()

        def launch(arguments: list[str], beats: Path, name: str) -> tuple[Ending, str]:
            files = sorted(path.name for path in beats.iterdir())
            assert_equal(f"files of earlier attempts at the start of attempt {len(calls) + 1}", files, [])
            if len(calls) == len(errors):
                _export(out, TARGET)
                return Ending.FINISHED, "ended"
            error = errors[len(calls)]
            calls.append(error)
            _save(out, len(calls))
            if error != "kill":
                for rank, is_other in enumerate((True, error == "other rank")):
                    text = "rank 1: 'x'" if is_other else f"'{error}'"
                    failure = Failure(
                        step=step + moves * len(calls),
                        type="RankError" if is_other else "ValueError",
                        message=text,
                        is_input=error == "input" and not is_other,
                        is_of_other_rank=is_other,
                    )
                    (beats / f"failure-rank-{rank}.json").write_text(json.dumps(asdict(failure)))
            return Ending.FAILED, "rank 1 ended with exit code 1"

        limits = subject.Limits(step=TARGET, max_retries=9, max_idle=9, silent_s=60.0)
        verdict = subject.until(Settings(out=out, save_every=1), [], limits, launch=launch, report=lines.append)
        expected = ("DONE", len(errors))
        for number, error in enumerate(errors, start=1):
            if error == "input":
                expected = ("REFUSED", number)
            elif error != "kill" and not moves and errors[number - 2 : number - 1] == [error]:
                expected = ("NO_PROGRESS", number)
            if expected[0] != "DONE":
                break
        when = f"with the errors {errors} {'from' if moves else 'after'} step {step}{', each a step later' * moves}"
        assert_equal(f"{when}, verdict and number of attempts", (verdict.name, len(calls)), expected)
        if verdict is not Verdict.DONE:
            message = "rank 1: 'x'" if calls[-1] == "other rank" else f"'{calls[-1]}'"
            at = step + moves * len(calls)
            when = f"after step {at}" if at else "before its first step"
            last = lines[-1]
            assert message in last and when in last, f"the last line is {last!r}; expected {message} {when}"


EARLIER_RUNS: dict[str, tuple[dict[str, Any], bool]] = {
    "no model": ({}, False),
    "a model of a run that its limit ended": ({"max_steps": TARGET - 1}, False),
    "a model of a run to its planned end": ({"max_steps": None}, True),
    "a model of a run that ended before its limit": ({"max_steps": TARGET}, True),
}
"""Settings of an earlier run of TARGET - 1 steps, and whether its model completes the run."""


@given(earlier=st.sampled_from(sorted(EARLIER_RUNS)), gains=st.lists(st.integers(1, 4), max_size=2))
@example(earlier="a model of a run that its limit ended", gains=[])
@example(earlier="a model of a run that ended before its limit", gains=[])
@example(earlier="a model of a run to its planned end", gains=[])
def falsify_run_without_a_step_goes_to_its_planned_end(subject: Any, earlier: str, gains: list[int]) -> None:
    settings, is_done = EARLIER_RUNS[earlier]
    with scratch() as directory:
        out = directory / "out"
        if settings:
            _export(out, TARGET - 1, settings=settings)
        run = Attempts(out, gains, TARGET)
        verdict = _until(subject, Settings(out=out, save_every=1), run, step=None, retries=9)
        attempts = 0 if is_done else len(gains) + 1
        assert_equal(f"{earlier}, verdict and attempts", (verdict, len(run.calls)), (Verdict.DONE, attempts))
        limited = [arguments for arguments, _ in run.calls if "--max-steps" in arguments]
        assert_equal(f"{earlier}, attempts with --max-steps", limited, [])


@given(damage=st.none() | st.sampled_from(sorted(MODELS)))
def falsify_checkpoint_without_a_model_is_not_the_end(subject: Any, damage: str | None) -> None:
    with scratch() as directory:
        out = directory / "out"
        _save(out, TARGET)
        if damage is not None:
            _export(out, TARGET)
            MODELS[damage](out)
        run = Attempts(out, [], TARGET)
        run.step = TARGET
        verdict = _until(subject, Settings(out=out, save_every=1), run)
        resumed = ["--resume" in arguments for arguments, _ in run.calls]
        case = "without a model" if damage is None else f"with a model that has {damage}"
        assert_equal(f"{case}, verdict and, by attempt, resume", (verdict, resumed), (Verdict.DONE, [True]))


CHANGES: list[dict[str, Any]] = [{}, {"lr": 0.5}, {"clip": 1.0}, {"layers": 7}, {"divergence": "reverse_kl"}]
FREE: list[dict[str, Any]] = [{}, {"log_every": 7}, {"keep": 9}, {"max_steps": TARGET + 1}, {"device": "cuda"}]


def _in_json(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(settings.flat(), default=str))
    return values


@given(changed=st.sampled_from(CHANGES), free=st.sampled_from(FREE), older=st.booleans(), are_chosen=st.booleans())
@example(changed={"lr": 0.5}, free={}, older=False, are_chosen=True)
def falsify_model_of_other_settings_is_not_the_end(
    subject: Any, changed: dict[str, Any], free: dict[str, Any], older: bool, are_chosen: bool
) -> None:
    """Settings that the command does not set are taken from the run, as for a run that resumes.

    changed: settings in which the model differs from the defaults. free: settings that a resumed run may change.
    older: the manifest lacks settings of newer versions. are_chosen: whether the command sets those in `changed`.
    """
    with scratch() as directory:
        out = directory / "out"
        settings = Settings(out=out)
        if are_chosen:
            settings = settings.replace(**{name: settings.flat()[name] for name in changed})
        recorded = {**({} if older else _in_json(settings)), **changed, **free}
        _export(out, TARGET, **({"settings": recorded} if recorded else {}))
        before, run = _contents(out), Attempts(out, [], TARGET)
        try:
            seen = _until(subject, settings, run).name
        except DriftError as error:
            seen = str(error)
        case = f"model of {recorded}: {seen!r}"
        now = _in_json(settings)
        drift = [f"{name} was {json.dumps(value)} and is {json.dumps(now[name])}" for name, value in changed.items()]
        drift = drift if are_chosen else []
        assert all(words in seen for words in drift) if drift else seen == "DONE", f"{case}; expected {drift or 'DONE'}"
        assert (run.calls, _contents(out)) == ([], before), f"{case}: files changed, or attempts: {run.calls}"


@given(verdict=st.sampled_from([None, 0, 4]), looks=st.integers(1, 5))
@example(verdict=None, looks=1)
@example(verdict=0, looks=3)
def falsify_announcement_that_nobody_renews_is_not_followed(subject: Any, verdict: int | None, looks: int) -> None:
    """A killed leader left its file. A new leader announces after `looks` reads of the file, and then renews it."""
    with scratch() as directory:
        place = subject.shared_directory(directory / "out")
        place.mkdir(parents=True)
        file, paused = place / subject.ANNOUNCED, 0

        def announce(**fields: Any) -> None:
            file.write_text(json.dumps(asdict(subject.Announcement(**fields))))

        def pause(seconds: float) -> None:
            nonlocal paused
            paused += 1
            assert paused < looks + 10, f"a renewed announcement is not returned in {paused - looks} reads"
            if paused == looks:
                announce(run_id="new", arguments=["distill"])
            if paused >= looks:
                os.utime(file, ns=(paused, paused))

        announce(run_id="old", verdict=verdict)
        seen = subject.next_announcement(directory / "out", "", pause)
    assert seen.run_id == "new" and paused >= looks, f"{seen} after {paused} reads; expected run new after {looks}"


@given(misses=st.lists(st.integers(0, 1), min_size=1, max_size=2))
@example(misses=[1, 0])
def falsify_machine_joins_until_it_has_met_the_others(subject: Any, misses: list[int]) -> None:
    """misses: by attempt, number of rendezvous that the machine misses before it meets the other machines."""
    expected = [f"attempt-{number}" for number, count in enumerate(misses) for _ in range(count + 1)]
    joined = list[str]()
    with scratch() as directory, machines.leading(directory / "out") as leader:

        def announce(number: int) -> None:
            is_over = number == len(misses)
            verdict = int(Verdict.DONE) if is_over else None
            leader.announce(machines.Announcement(run_id="" if is_over else f"attempt-{number}", verdict=verdict))

        def launch(config: Any, entrypoint: str) -> Callable[..., None]:
            joined.append(config.run_id)
            number, tries = int(config.run_id.rpartition("-")[2]), joined.count(config.run_id)

            def agent(*script: str) -> None:
                if tries <= misses[number]:
                    raise RendezvousTimeoutError("the other machines are absent")
                announce(number + 1)

            return agent

        announce(0)
        end = threading.Timer(5 + 5 * len(expected), announce, [len(misses)])  # ends a machine that waits forever
        end.daemon = True
        end.start()
        limits = subject.Limits(step=None, max_retries=0, max_idle=1, silent_s=60.0)
        machine = machines.Machines(count=2, endpoint="localhost:0", run_id="run", rank=1)
        with mock.patch.object(subject, "elastic_launch", launch):
            verdict = subject.supervise(
                Settings(out=directory / "out"), [], limits, ranks=1, report=lambda line: None, machines=machine
            )
        end.cancel()
    case = f"missed rendezvous by attempt: {misses}"
    assert_equal(f"{case}, joined attempts and verdict", (joined, verdict), (expected, Verdict.DONE))


DEFAULT_INTERVAL = {False: 5000, True: 500}
"""Default of `save_every`, for a student without and with pretrained weights."""
CONFLICTING = {"smoke": 2, "max_steps": 9, "resume": Path("latest")}


@given(
    save_every=st.none() | st.integers(0, 9),
    step=st.none() | st.integers(1, 9) | st.sampled_from([499, 500, 4999, 5000]),
    pretrained=st.booleans(),
    other=st.sampled_from([None, *CONFLICTING]),
)
@example(save_every=None, step=500, pretrained=True, other=None)
@example(save_every=3, step=3, pretrained=False, other="resume")
@example(save_every=0, step=None, pretrained=False, other="smoke")
def falsify_runs_that_cannot_be_supervised_are_named(
    subject: Any, save_every: int | None, step: int | None, pretrained: bool, other: str | None
) -> None:
    values: dict[str, Any] = {} if save_every is None else {"save_every": save_every}
    values |= {"student": Path("a-model"), "data": Path("chats.jsonl")} if pretrained else {}
    seen = subject.find_problems(Settings(**values, **({} if other is None else {other: CONFLICTING[other]})), step)
    every = DEFAULT_INTERVAL[pretrained] if save_every is None else save_every
    expected = [] if other is None else [f"--{other.replace('_', '-')} "]
    if not every or (step is not None and every > step):
        expected.append(f"--save-every is {every}{'' if every else ';'}")
    is_named = len(seen) == len(expected) and all(map(str.startswith, seen, expected))
    assert is_named, f"with {values}, {other} and the step {step}, the problems are {seen}; expected {expected}"
