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

from falsifiers.resume.runs import STEPS, ended, settings
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
        seen = sorted(beat.step for beat in subject.silent_beats(subject.beats(directory), 1000.0, 10.0))
        expected = sorted(number + 1 for number, age in ages.items() if age > 10.0)
        assert seen == expected, f"of ranks with beats of the ages {ages} s, {seen} are silent; expected {expected}"
        killed = subject.kill_stale(directory)
        assert killed == [], f"of processes that have ended, {killed} are killed"
        left = sorted(path.name for path in directory.iterdir())
        assert not left, f"once a supervisor begins, {left} are left of an earlier one"


@contextmanager
def _ranks(subject: Any, directory: Path, count: int) -> Iterator[list[Any]]:
    """Yield the first beats of processes that were started one after another, at least two ticks of a clock apart."""
    beats = list[Any]()
    try:
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                subject.Heart(directory / f"rank-{number}.json")
                time.sleep(LIVES_S)
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
        beats, left = root / "beats", root / "left"
        beats.mkdir(), left.mkdir()
        with _ranks(subject, beats, 1 + len(recycled)) as (earlier, *ranks):
            for number, (beat, is_recycled) in enumerate(zip(ranks, recycled, strict=True)):
                written = replace(beat, born=earlier.born) if is_recycled else beat
                (left / f"rank-{number}.json").write_text(json.dumps(asdict(written)))
            pids = [beat.pid for beat in subject.kill_stale(left)]
            expected = [beat.pid for beat, is_recycled in zip(ranks, recycled, strict=True) if not is_recycled]
            assert pids == expected, f"ranks {recycled} are other processes; {pids} are killed, expected {expected}"
            for beat in ranks:
                wait = os.WEXITED | os.WNOWAIT | (0 if beat.pid in expected else os.WNOHANG)
                end = os.waitid(os.P_PID, beat.pid, wait)
                killed = end is not None and end.si_status == signal.SIGKILL
                assert killed == (beat.pid in expected), f"ranks {recycled} are other processes; {beat} ended as {end}"


HUNG_S = 12.0
"""How long the second step takes. The watchdog is asked for one second, and leaves within another one."""


class Stuck(Lines):
    """Lines that hang while the line of the teacher's hundredth step is written."""

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
        _, result = ended(subject, settings(directory, "uninterrupted", hang_after=60))
        assert result.train.steps_completed == STEPS, f"a run that does not hang: {result.train}"

        for begins, since, hook in ((False, "its start", "attach"), (True, "on_step_end of step 2", "on_step_end")):

            def hung(begins: bool = begins) -> None:
                ended(subject, settings(directory, f"out-{begins}", hang_after=1), [Hanging(begins=begins)])

            _assert_left(hung, directory, f"-after 1: no progress of the student since {since}", hook)


def falsify_hung_training_of_a_teacher_ends(subject: Any) -> None:
    assert Settings().run.hang_after >= 1800, f"by default a step may take {Settings().run.hang_after} s"
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

    message = in_child(hung)
    assert message == "", f"a run that hangs does not leave: {message}"
    stacks = stderr.read_text()
    assert "Timeout" in stacks and f"in {hook}\n" in stacks, f"standard error has no stack of {hook}: {stacks}"
    assert line in stacks, f"standard error does not say {line!r}: {stacks}"


@given(save_every=st.sampled_from([0, 1, 5000]), step=st.integers(1, 2), is_warned=st.booleans())
@example(save_every=5000, step=1, is_warned=True)
@example(save_every=1, step=2, is_warned=False)
@example(save_every=0, step=1, is_warned=False)
def falsify_asked_run_has_saved_its_step(subject: Any, save_every: int, step: int, is_warned: bool) -> None:
    """is_warned: SIGUSR1 comes 1.1 s before SIGTERM, in the same step; within a second, signals count as one."""

    def send() -> None:
        if is_warned:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(1.1)
        os.kill(os.getpid(), signal.SIGTERM)

    with scratch() as directory:
        run(subject, small(directory, out=directory / "uninterrupted"))

        def asked() -> None:
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            interrupts.exit_at_once()  # as the command does first
            interrupts.raise_once()
            settings = small(directory, out=directory / "out").model_copy(update={"save_every": save_every})
            terminating = acting(send, "on_optimizer_step", step)
            try:
                run(subject, settings, callbacks=[terminating])
            except BaseException as error:
                (directory / "ended").write_text(type(error).__name__)

        message = in_child(asked)
        ended = (directory / "ended").read_text() if (directory / "ended").exists() else message
        expected = "StopRequestedError" if save_every else "KeyboardInterrupt"
        case = f"saved every {save_every} steps and asked in step {step}{', after SIGUSR1' * is_warned}"
        assert ended == expected, f"{case}, the run ends with {ended}"
        seen = saved_steps(directory / "out" / "checkpoints", "student")
        wanted = list(range(1, step + 1)) if save_every == 1 else [step] if save_every else []
        assert seen == wanted, f"{case}, {seen} are saved"


RUN, RANK = "student", "rank-00000.safetensors"


def _save(out: Path, step: int) -> Path:
    manifest = Manifest(run_id=RUN, step=step, conditions={}, state={})
    return save_checkpoint(out / "checkpoints", manifest, {"w": torch.full((3,), float(step))})


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file cut off": lambda path: os.truncate(path / RANK, 9),
    "a flipped bit": lambda path: flip(path / RANK),
    "a missing file": lambda path: (path / RANK).unlink(),
    "half a manifest": lambda path: os.truncate(path / "manifest.json", 40),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "another step's manifest": lambda path: reconfigure(path / "manifest.json", step=999),
}


@given(damages=st.lists(st.none() | st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=4), aside=st.integers(0, 3))
@example(damages=[None, "a flipped bit"], aside=3)
def falsify_newest_whole_checkpoint_is_found(subject: Any, damages: list[str | None], aside: int) -> None:
    """aside: the number of damaged checkpoints of the last step that were renamed before."""
    with scratch() as directory:
        out = directory / "out"
        for step, damage in enumerate(damages, start=1):
            path = _save(out, step)
            if damage is not None:
                DAMAGES[damage](path)
        before_it = [f"{path.name}.damaged{number if number > 1 else ''}" for number in range(1, aside + 1)]
        for name in before_it:
            shutil.copytree(path, path.with_name(name))
        before, reports = _contents(out), list[str]()
        whole = [step for step, damage in enumerate(damages, start=1) if damage is None]
        try:
            seen: Any = subject.whole_step(out, reports.append)
        except CheckpointError:
            seen = "refused"
        expected = whole[-1] if whole else "refused"
        assert seen == expected, f"with the damages {damages} the newest undamaged step is {seen}; expected {expected}"
        assert _contents(out) == before, f"with the damages {damages} a file is lost or changed"
        stays = whole[-1] if whole else 1
        left = sorted(path.name for path in (out / "checkpoints").glob(f"{RUN}-step*"))
        steps = range(1, len(damages) + 1)
        names = [f"{RUN}-step{step}{'' if step <= stays else '.damaged'}" for step in steps]
        if aside and stays < len(damages):
            names[-1] += f"{aside + 1}"
        names = sorted([*names, *before_it])
        assert left == names, f"with the damages {damages} the checkpoints are {left}; expected {names}"
        assert len(reports) == len(damages) - stays, f"with the damages {damages}, {reports} is reported"


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
    """Attempts of a run that take some steps each, the last of them to the end; `calls` are recorded."""

    def __init__(self, out: Path, gains: list[int], target: int) -> None:
        self.out, self.gains, self.target = out, gains, target
        self.calls: list[tuple[list[str], str]] = []
        self.at = 0

    def __call__(self, arguments: list[str], beats: Path, name: str) -> tuple[Ending, str]:
        assert beats.is_dir(), f"{beats} is no directory for heartbeats"
        self.calls.append((list(arguments), name))
        gain = self.gains[len(self.calls) - 1] if len(self.calls) <= len(self.gains) else self.target
        self.at = min(self.at + gain, self.target)
        if gain and not (self.out / "checkpoints" / f"{RUN}-step{self.at}").exists():
            _save(self.out, self.at)
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
    """older: step of an earlier model, which is no progress of this run. alone: whether it has no checkpoint."""
    with scratch() as directory:
        out = directory / "out"
        if older:
            _export(out, older)
        if older and not alone:
            _save(out, older)
        run = Attempts(out, gains, TARGET)
        run.at = 0 if alone else older
        seen = _until(subject, Settings(out=out, save_every=1), run, retries=retries, idle=idle)
        model = f"a model of step {older} {'alone' if alone else 'and its checkpoint'}"
        when = f"with {retries} retries, {idle} idle attempts, gains {gains} and {model}"
        if older == TARGET:
            assert (seen, run.calls) == (Verdict.DONE, []), f"{when}, the run is started again: {seen.name}"
        else:
            at = 0 if alone else older
            for number, (arguments, _) in enumerate(run.calls):
                options = ["--resume", "latest"] if at else []
                options += ["--force"] if at or number else []
                expected = ["distill", "--seed", "3", "--max-steps", str(TARGET), *options]
                assert arguments == expected, f"{when}, attempt {number + 1} has {arguments}; expected {expected}"
                at += [*gains, TARGET][number] if number <= len(gains) else 0
            ended, wanted = (seen.name, len(run.calls)), _expected(gains, retries, idle)
            assert ended == wanted, f"{when}, verdict and attempts are {ended}; expected {wanted}"
        names = [name for _, name in run.calls]
        assert len(set(names)) == len(names), f"{when}, attempts have the names {names}"
        left = sorted(path.name for path in out.parent.iterdir() if path != out)
        assert left == [], f"{when}, {left} is left beside the output"


def _expected(gains: list[int], retries: int, idle: int) -> tuple[str, int]:
    """Return the name of the verdict, and the number of attempts."""
    standing = 0
    for number, gain in enumerate(gains, start=1):
        standing = 0 if gain else standing + 1
        if standing >= idle:
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
    """Every attempt progresses and fails.

    errors: the error of each attempt. Rank 1 writes it, and rank 0 writes that another rank failed; with "other rank"
    both ranks write that, with "kill" none writes. moves: whether an attempt fails one step after the attempt before.
    """
    with scratch() as directory:
        out, calls, lines = directory / "out", list[str](), list[str]()

        def launch(arguments: list[str], beats: Path, name: str) -> tuple[Ending, str]:
            left = sorted(path.name for path in beats.iterdir())
            assert left == [], f"attempt {len(calls) + 1} begins with {left} of the one before"
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
        seen = subject.until(Settings(out=out, save_every=1), [], limits, launch=launch, report=lines.append)
        ended, wanted = (seen.name, len(calls)), ("DONE", len(errors))
        for number, error in enumerate(errors, start=1):
            if error == "input":
                wanted = ("REFUSED", number)
            elif error != "kill" and not moves and errors[number - 2 : number - 1] == [error]:
                wanted = ("NO_PROGRESS", number)
            if wanted[0] != "DONE":
                break
        when = f"with the errors {errors} {'from' if moves else 'after'} step {step}{', each a step later' * moves}"
        assert ended == wanted, f"{when}, verdict and attempts are {ended}; expected {wanted}"
        if seen is not Verdict.DONE:
            message = "rank 1: 'x'" if calls[-1] == "other rank" else f"'{calls[-1]}'"
            at = step + moves * len(calls)
            when = f"after step {at}" if at else "before its first step"
            last = lines[-1]
            assert message in last and when in last, f"given up with {last!r}; expected {message} {when}"


OLDER: dict[str, tuple[dict[str, Any], bool]] = {
    "no model": ({}, False),
    "a model of a run that its limit ended": ({"max_steps": TARGET - 1}, False),
    "a model of a run to its planned end": ({"max_steps": None}, True),
    "a model of a run that ended before its limit": ({"max_steps": TARGET}, True),
}
"""The settings of an earlier run of TARGET - 1 steps, and whether it came to its planned end."""


@given(older=st.sampled_from(sorted(OLDER)), gains=st.lists(st.integers(1, 4), max_size=2))
@example(older="a model of a run that its limit ended", gains=[])
@example(older="a model of a run that ended before its limit", gains=[])
@example(older="a model of a run to its planned end", gains=[])
def falsify_run_without_a_step_goes_to_its_planned_end(subject: Any, older: str, gains: list[int]) -> None:
    settings, is_done = OLDER[older]
    with scratch() as directory:
        out = directory / "out"
        if settings:
            _export(out, TARGET - 1, settings=settings)
        run = Attempts(out, gains, TARGET)
        seen = _until(subject, Settings(out=out, save_every=1), run, step=None, retries=9)
        attempts = 0 if is_done else len(gains) + 1
        ended = (seen, len(run.calls))
        assert ended == (Verdict.DONE, attempts), f"with {older}, {ended}; expected DONE after {attempts} attempts"
        limited = [arguments for arguments, _ in run.calls if "--max-steps" in arguments]
        assert limited == [], f"with {older}, the plan is cut off: {limited}"


@given(damage=st.none() | st.sampled_from(sorted(MODELS)))
def falsify_checkpoint_without_a_model_is_not_the_end(subject: Any, damage: str | None) -> None:
    with scratch() as directory:
        out = directory / "out"
        _save(out, TARGET)
        if damage is not None:
            _export(out, TARGET)
            MODELS[damage](out)
        run = Attempts(out, [], TARGET)
        run.at = TARGET
        seen = _until(subject, Settings(out=out, save_every=1), run)
        resumed = ["--resume" in arguments for arguments, _ in run.calls]
        case = "without a model" if damage is None else f"with a model that has {damage}"
        assert (seen, resumed) == (Verdict.DONE, [True]), f"{case}, {seen.name} after {resumed}"


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
    """The command may leave settings out; then the settings of the run are used, as for a run that resumes.

    free: settings that a run may change when it resumes. older: the manifest lacks settings of newer versions.
    are_chosen: whether the command has those that are changed.
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
        case = f"with a model of {recorded}, the end is {seen!r}"
        now = _in_json(settings)
        drift = [f"{name} was {json.dumps(value)} and is {json.dumps(now[name])}" for name, value in changed.items()]
        drift = drift if are_chosen else []
        assert all(words in seen for words in drift) if drift else seen == "DONE", f"{case}; expected {drift or 'DONE'}"
        assert (run.calls, _contents(out)) == ([], before), f"{case}, after the attempts {run.calls}"


@given(verdict=st.sampled_from([None, 0, 4]), looks=st.integers(1, 5))
@example(verdict=None, looks=1)
@example(verdict=0, looks=3)
def falsify_announcement_that_nobody_renews_is_not_followed(subject: Any, verdict: int | None, looks: int) -> None:
    """A killed leader left a file; another one announces after some looks, and renews its file from then on."""
    with scratch() as directory:
        place = subject.shared_directory(directory / "out")
        place.mkdir(parents=True)
        file, paused = place / subject.ANNOUNCED, 0

        def announce(**fields: Any) -> None:
            file.write_text(json.dumps(asdict(subject.Announcement(**fields))))

        def pause(seconds: float) -> None:
            nonlocal paused
            paused += 1
            assert paused < looks + 10, f"a renewed announcement is not followed after {paused - looks} looks"
            if paused == looks:
                announce(run_id="new", arguments=["distill"])
            if paused >= looks:
                os.utime(file, ns=(paused, paused))

        announce(run_id="old", verdict=verdict)
        seen = subject.next_announcement(directory / "out", "", pause)
    assert (seen.run_id, paused >= looks) == ("new", True), f"after {paused} of {looks} looks, {seen} is followed"


@given(misses=st.lists(st.integers(0, 1), min_size=1, max_size=2))
@example(misses=[1, 0])
def falsify_machine_joins_until_it_has_met_the_others(subject: Any, misses: list[int]) -> None:
    """Attempts follow each other; the machine does not meet the others in the first `misses[k]` tries of attempt k."""
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
                    raise RendezvousTimeoutError("the others are not there")
                announce(number + 1)

            return agent

        announce(0)
        end = threading.Timer(5 + 5 * len(expected), announce, [len(misses)])  # a machine that waits in vain
        end.daemon = True
        end.start()
        limits = subject.Limits(step=None, max_retries=0, max_idle=1, silent_s=60.0)
        machine = machines.Machines(count=2, endpoint="localhost:0", run_id="run", rank=1)
        with mock.patch.object(subject, "elastic_launch", launch):
            verdict = subject.supervise(
                Settings(out=directory / "out"), [], limits, ranks=1, report=lambda line: None, machines=machine
            )
        end.cancel()
    case = f"with {misses} tries that do not meet the others"
    assert joined == expected, f"{case}, the attempts {joined} are joined; expected {expected}"
    assert verdict is Verdict.DONE, f"{case}, the verdict is {verdict!r}"


DUE = {False: 5000, True: 500}
"""Steps after which a checkpoint is saved by default, of a student without weights and with weights."""
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
    every = DUE[pretrained] if save_every is None else save_every
    expected = [] if other is None else [f"--{other.replace('_', '-')} "]
    if not every or (step is not None and every > step):
        expected.append(f"--save-every is {every}{'' if every else ';'}")
    is_named = len(seen) == len(expected) and all(map(str.startswith, seen, expected))
    assert is_named, f"with {values}, {other} and the step {step}, the problems are {seen}; expected {expected}"
