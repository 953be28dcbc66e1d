"""Runs jobs for the claims of the suite, and shares every run between them."""

import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import SkipTest

import torch

from pv.errors import PvError
from pv.instrument import processes
from pv.instrument.coverage import ran, seen
from pv.suites.training_loop.claims.cases import TOGETHER, equal, job
from pv.suites.training_loop.declared import refuse_seen
from pv.suites.training_loop.job import ATTRIBUTES, RARE, Job, Trainer
from pv.suites.training_loop.killed import killed
from pv.suites.training_loop.plain import implied, lacked, simplify
from pv.suites.training_loop.ranks import Template, run_ranks
from pv.suites.training_loop.run import Run, observe

PATIENCE_S = 20.0
"""How long a bench waits in all for runs that other processes make; then it makes its own.

A process that waits for longer looks like one that hangs.
"""
SIMPLEST = job(equal(4))
"""The job that every loop can run."""


def bench(subject: Any, directory: Path | None) -> "Bench":
    """Return a bench of an adapter, or of what `adapted` makes one of."""
    from pv.suites.training_loop.adapters import adapted

    return Bench(adapted(subject), directory)


class Bench:
    """A trainer with its runs. Processes that are given the same directory share them.

    directory: of the runs and their checkpoints; None for a temporary one.
    """

    cannot = "the loop cannot run the simplest job (an epoch of 4 examples of one length, in batches of 2)"
    """What `warm_up` shows if it raises."""
    apart = frozenset({"ranks"})
    """The features of claims that may be tried although it raises for others."""

    def __init__(self, trainer: Trainer, directory: Path | None = None) -> None:
        self.trainer = trainer
        self.directory = directory or Path(tempfile.mkdtemp())
        self._runs: dict[str, list[Run]] = {}
        self._patience = PATIENCE_S
        self._warm = False
        self._is_fresh = directory is not None  # the process of one claim, which has run nothing
        self._template: Template | None = None
        self.used: list[Run] = []
        """The runs that the claim has looked at, the last one last."""

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Return the reasons of the claims that the trainer does not make, by id."""
        return self.trainer.not_claimed

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        """Return why the trainer does not make a claim; "" if it does."""
        unnamed = RARE.difference(getattr(self.trainer, "has", ()))
        unnamed -= {name for name in ATTRIBUTES if getattr(self.trainer, name, None) is not None}
        lacks = dict.fromkeys(unnamed, "its adapter does not name it in `has`") | implied(lacked(self.trainer))
        if len(TOGETHER.keys() - lacks.keys()) < 2:
            lacks["pairs"] = f"it has fewer than two of {', '.join(TOGETHER)}"
        lacking = [f"no {feature}: {lacks[feature]}" for feature in needs if feature in lacks]
        return "; ".join([*lacking, *filter(None, [self.trainer.not_claimed.get(claim)])])

    def warm_up(self, needs: Collection[str] = ()) -> None:
        """Run the simplest job once. Raise what the loop or its adapter raises; what it skips is left to the claims.

        A part that is to be filled in is raised, too, since no claim can do without it.

        Raise `Contradiction` if the run shows what the adapter declares to be missing. needs: of the claim to try; for
        one about ranks, a loop that can run in two processes alone is enough.
        """
        from pv.suites.training_loop.adapters.handwritten import Placeholder

        if self._warm:
            return
        if self._is_fresh and "ranks" in needs:
            self._template = Template()
        before = set(seen)
        try:
            refuse_seen(self.trainer, self.run(SIMPLEST))
        except Placeholder:
            raise
        except SkipTest:
            pass
        except Exception as error:
            if isinstance(error, PvError) or "ranks" not in needs or not self._runs_in_ranks():
                raise
        self._warm = True
        ran.update(seen - before)
        seen.intersection_update(before)  # no claim has reached it
        self._runs.clear()
        self.used.clear()

    def _runs_in_ranks(self) -> bool:
        failed = self.directory / "simplest-job-fails-in-ranks"  # processes are slow to start, so each claim reads this
        if failed.exists():
            return False
        try:
            self.ranks(SIMPLEST, 2)
        except Exception:
            failed.touch()
            return False
        return True

    def run(self, job: Job) -> Run:
        """Return the run of a job, whose directory is chosen here."""
        job = simplify(job, lacked(self.trainer))
        return self._once(repr(job), lambda place: observe(self.trainer, replace(job, directory=place)))

    def repeat(self, job: Job) -> Run:
        """Return another run of the job than `run` does."""
        return self._once(f"{job!r} again", lambda place: observe(self.trainer, replace(job, directory=place)))

    def resume(self, straight: Run, step: int, **others: Any) -> Run:
        """Return the run that goes on from the checkpoint of a step, as if the first had been killed after it.

        others: settings that are not those of the first run.
        """

        def go_on(place: Path) -> Run:
            saved = _copy(straight, step, place)
            again = observe(self.trainer, replace(straight.job, directory=place, resume=saved, **others))
            return replace(again, done=step)

        changed = "".join(f", {name} {value!r}" for name, value in others.items())
        return self._once(f"{replace(straight.job, directory=Path())!r} from {step}{changed}", go_on)

    def run_after(self, earlier: Run, job: Job) -> Run:
        """Return the run of a job in a copy of the directory of an earlier one, from its first step."""
        job = simplify(job, lacked(self.trainer))

        def run(place: Path) -> Run:
            shutil.copytree(earlier.job.directory, place, dirs_exist_ok=True, symlinks=True)
            return observe(self.trainer, replace(job, directory=place))

        return self._once(f"{job!r} after {replace(earlier.job, directory=Path())!r}", run)

    def ranks(self, job: Job, size: int) -> list[Run]:
        """Return the runs of a job in so many processes, by rank."""
        job = simplify(job, lacked(self.trainer), size)
        return self._all(
            f"{job!r} x {size}",
            lambda place: run_ranks(self.trainer, replace(job, directory=place), size, self._template),
        )

    def resume_ranks(self, straight: list[Run], step: int) -> list[Run]:
        """Return the runs that go on from the checkpoint of a step, in as many processes, by rank."""
        first = straight[0]

        def go_on(place: Path) -> list[Run]:
            saved = _copy(first, step, place)
            resumed = replace(first.job, directory=place, resume=saved)
            runs = run_ranks(self.trainer, resumed, len(straight), self._template)
            return [replace(run, done=step) for run in runs]

        return self._all(f"{replace(first.job, directory=Path())!r} x {len(straight)} from {step}", go_on)

    def kill(self, straight: Run, operation: int) -> Path | None:
        """Return the directory of a run that was killed at an operation on files; None if it had fewer of them."""
        place = Path(tempfile.mkdtemp(dir=self.directory))
        job = replace(straight.job, directory=place)
        return place if killed(lambda: observe(self.trainer, job), place, operation) else None

    def go_on(self, straight: Run, place: Path, saved: Path, **others: Any) -> Run:
        """Return the run that goes on from a checkpoint in the directory of a killed run. others: settings."""
        self.used.append(observe(self.trainer, replace(straight.job, directory=place, resume=saved, **others)))
        return self.used[-1]

    def _once(self, job: str, make: Callable[[Path], Run]) -> Run:
        """Return the run of that description."""
        return self._all(job, lambda place: [make(place)])[0]

    def _all(self, job: str, make: Callable[[Path], list[Run]]) -> list[Run]:
        if job not in self._runs:
            self._runs[job] = self._shared(self.directory / hashlib.sha256(job.encode()).hexdigest()[:20], make)
        self.used.extend(self._runs[job])
        return self._runs[job]

    def _shared(self, place: Path, make: Callable[[Path], list[Run]]) -> list[Run]:
        """Return the runs that are kept beside their directory; the first process that asks for them makes them."""
        record = place.with_suffix(".run")
        began = time.monotonic()
        with _locked(place.with_suffix(".lock"), self._patience) as locked:
            self._patience -= time.monotonic() - began
            if not locked:
                return make(Path(tempfile.mkdtemp(dir=self.directory)))
            if not record.exists():
                shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
                place.mkdir(parents=True)
                _write(record, make(place))
        return _read(record)


def _copy(straight: Run, step: int, place: Path) -> Path:
    """Copy the directory of a run without its later checkpoints, and return the copy of that of the step.

    Raise SkipTest if that is not there, or is the path of a later one, too.
    """
    home, reported = straight.job.directory, straight.checkpoints
    if step not in reported:
        raise SkipTest(f"the adapter reports no checkpoint of step {step}, after which one is due")
    later = {path for at, path in reported.items() if at > step}
    what = f"the adapter reports {reported[step]} as the checkpoint of step {step}"
    if reported[step] in later:
        raise SkipTest(f"{what}, and of a later step: report a path of its own for each, such as a copy")
    if not (reported[step].is_relative_to(home) and reported[step].exists()):
        raise SkipTest(f"{what}, and no such file exists in {home} when the run ends: do not remove it")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(folder, name) in later}

    shutil.copytree(home, place, dirs_exist_ok=True, symlinks=True, ignore=ignored)
    return place / reported[step].relative_to(home)


def _write(path: Path, runs: list[Run]) -> None:
    partial = path.with_suffix(".partial")
    torch.save(
        (runs, sorted(seen), processes.current_trace()), partial
    )  # pickle would save each tensor as a file of its own
    partial.replace(path)


def _read(path: Path) -> list[Run]:
    """Return runs, and count what the process that made them reached and read as reached and read by this one."""
    runs, reached, trace = torch.load(path, weights_only=False)
    seen.update(reached)
    processes.use(trace)
    return cast("list[Run]", runs)


@contextmanager
def _locked(path: Path, patience_s: float) -> Iterator[bool]:
    """Yield whether the file could be locked for this process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + patience_s
    with path.open("w") as file:
        while not (locked := _lock(file.fileno())) and time.monotonic() < end:
            time.sleep(0.05)
        yield locked


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
