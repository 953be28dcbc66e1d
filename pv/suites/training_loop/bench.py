"""Run jobs for the claims of the suite, and cache the runs: claims about a subject share them, also between processes.

A run is looked up by the text of its job: first in this process, then in the directory, in which the first process that
asks for a run locks it, makes it, and stores it.
"""

import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest import SkipTest

import torch

from pv.errors import PvError
from pv.instrument import processes
from pv.instrument.coverage import ran, seen
from pv.suites.bench import SuiteBench
from pv.suites.training_loop.cases import TOGETHER, equal
from pv.suites.training_loop.features import check_simplest_run, missing_features, restrict_job
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.processes import Template, killed, run_ranks
from pv.suites.training_loop.run import Run, observe

PATIENCE_S = 20.0
"""Seconds that a bench waits in total for runs that other processes make; then it makes the runs itself.

A process that waits for longer would be taken for one that hangs.
"""
SIMPLEST = Job(train=equal(4))
"""The job that every loop can run."""


def bench(subject: object, directory: Path | None) -> "Bench":
    """Return the bench of a trainer.

    Args:
        subject: An adapter, or a class of a known library.
        directory: As for `Bench`.

    Raises:
        NoAdapter: The subject is neither; the text says what to write.
    """
    from pv.suites.training_loop.adapters import adapted

    return Bench(adapted(subject), directory)


class Bench(SuiteBench):
    """Runs the jobs of claims with a trainer; a job is run once for all claims.

    Args:
        trainer: The adapter.
        directory: Where runs and their checkpoints are stored; None for a temporary directory. Processes with the same
            directory share runs.
    """

    cannot = "the loop cannot run the simplest job (an epoch of 4 examples of one length, in batches of 2)"
    apart = frozenset({"ranks"})

    def __init__(self, trainer: Trainer, directory: Path | None = None) -> None:
        self.subject = self.trainer = trainer
        self.used: list[Run] = []
        self.directory = directory or Path(tempfile.mkdtemp())
        self._runs: dict[str, list[Run]] = {}
        self._patience = PATIENCE_S
        self._warm = False
        self._is_fresh = directory is not None  # the process of one claim, which has run nothing
        self._template: Template | None = None

    @property
    def lacks(self) -> dict[str, str]:  # type: ignore[override]  # the base class stores it; here it follows the trainer
        """Return the reasons of the features that the trainer does not have."""
        lacks = missing_features(self.trainer)
        if len(TOGETHER.keys() - lacks.keys()) < 2:
            lacks["pairs"] = f"it has fewer than two of {', '.join(TOGETHER)}"
        return lacks

    def warm_up(self, needs: Collection[str] = ()) -> None:
        """Run the simplest job once, so that a loop that cannot run at all is reported once.

        Args:
            needs: The features that the claim uses. Claims about ranks only need a loop that runs in two processes.

        Raises:
            Contradiction: The run shows a feature that the adapter declares to be missing.
            Placeholder: A part of the adapter is to be filled in: no claim can do without it. Other skips are left to
                the claims.
            Exception: What the loop or its adapter raises.
        """
        from pv.suites.training_loop.adapters.handwritten import Placeholder

        if self._warm:
            return
        # Ranks are forked from a process that has run nothing, so the template is made before the first run.
        if self._is_fresh and "ranks" in needs:
            self._template = Template()
        before = set(seen)
        try:
            check_simplest_run(self.trainer, self.run(SIMPLEST))
        except Placeholder:
            raise
        except SkipTest:
            pass
        except Exception as error:
            if isinstance(error, PvError) or "ranks" not in needs or not self._runs_in_ranks():
                raise
        self._warm = True
        # The code of this run was executed, but not by the claim: only code that the claim reaches gets mutants.
        ran.update(seen - before)
        seen.intersection_update(before)
        self._runs.clear()
        self.used.clear()

    def _runs_in_ranks(self) -> bool:
        """Return whether the simplest job runs in two processes."""
        # Processes are slow to start, so a failure is stored for all claims.
        failed = self.directory / "simplest-job-fails-in-ranks"
        if failed.exists():
            return False
        try:
            self.ranks(SIMPLEST, 2)
        except Exception:
            failed.touch()
            return False
        return True

    def run(self, job: Job) -> Run:
        """Return the run of a job.

        Args:
            job: The job; it is restricted to the features of the trainer, and gets another directory.
        """
        job = self._restricted(job)
        return self._once(repr(job), lambda place: observe(self.trainer, replace(job, directory=place)))

    def rerun(self, job: Job) -> Run:
        """Run a job a second time, to compare it with the cached run.

        Args:
            job: The attribute `job` of the first run.
        """
        return self._once(f"{job!r} again", lambda place: observe(self.trainer, replace(job, directory=place)))

    def resume(self, uninterrupted: Run, step: int, *, epochs: int | None = None) -> Run:
        """Return a run that resumes another run from a checkpoint, as if that had been killed after it.

        Args:
            uninterrupted: The uninterrupted run. Its directory is copied without later checkpoints.
            step: The step of the checkpoint.
            epochs: The number of epochs of the resumed run; None for the number in the job.

        Raises:
            SkipTest: The adapter reports no such checkpoint.
        """

        def resume(place: Path) -> Run:
            saved = _copy(uninterrupted, step, place)
            job = replace(uninterrupted.job, directory=place, resume=saved)
            again = observe(self.trainer, job if epochs is None else replace(job, epochs=epochs))
            return replace(again, done=step)

        changed = "" if epochs is None else f", epochs {epochs}"
        return self._once(f"{replace(uninterrupted.job, directory=Path())!r} from {step}{changed}", resume)

    def run_after(self, earlier: Run, job: Job) -> Run:
        """Return the run of a job from its first step, in a copy of the directory of an earlier run.

        Args:
            earlier: The earlier run.
            job: The job.
        """
        job = self._restricted(job)

        def run(place: Path) -> Run:
            shutil.copytree(earlier.job.directory, place, dirs_exist_ok=True, symlinks=True)
            return observe(self.trainer, replace(job, directory=place))

        return self._once(f"{job!r} after {replace(earlier.job, directory=Path())!r}", run)

    def ranks(self, job: Job, size: int) -> list[Run]:
        """Return the runs of a job in several processes, by rank.

        Args:
            job: The job.
            size: The number of processes.
        """
        job = self._restricted(job, size)
        return self._all(
            f"{job!r} x {size}",
            lambda place: run_ranks(self.trainer, replace(job, directory=place), size, self._template),
        )

    def resume_ranks(self, uninterrupted: list[Run], step: int) -> list[Run]:
        """Return runs that resume the runs of all ranks from a checkpoint, by rank.

        Args:
            uninterrupted: The uninterrupted runs, by rank.
            step: The step of the checkpoint.

        Raises:
            SkipTest: The adapter reports no such checkpoint.
        """
        first = uninterrupted[0]

        def resume(place: Path) -> list[Run]:
            saved = _copy(first, step, place)
            resumed = replace(first.job, directory=place, resume=saved)
            runs = run_ranks(self.trainer, resumed, len(uninterrupted), self._template)
            return [replace(run, done=step) for run in runs]

        return self._all(f"{replace(first.job, directory=Path())!r} x {len(uninterrupted)} from {step}", resume)

    def kill(self, uninterrupted: Run, operation: int) -> Path | None:
        """Run a job and kill it at an operation on files.

        Args:
            uninterrupted: A run of the same job.
            operation: The number of the operation.

        Returns:
            The directory of the killed run; None if it had fewer operations.
        """
        place = Path(tempfile.mkdtemp(dir=self.directory))
        job = replace(uninterrupted.job, directory=place)
        return place if killed(lambda: observe(self.trainer, job), place, operation) else None

    def resume_run(self, uninterrupted: Run, place: Path, saved: Path, *, saves: bool = True) -> Run:
        """Resume a killed run in its directory, and return the resumed run. Nothing is copied or stored.

        Args:
            uninterrupted: The uninterrupted run of the same job.
            place: The directory.
            saved: The checkpoint in it.
            saves: Whether the resumed run saves checkpoints.
        """
        job = replace(uninterrupted.job, directory=place, resume=saved)
        self.used.append(observe(self.trainer, job if saves else replace(job, save_every=0)))
        return self.used[-1]

    def _restricted(self, job: Job, ranks: int = 1) -> Job:
        return restrict_job(job, missing_features(self.trainer), ranks)

    def _once(self, job: str, make: Callable[[Path], Run]) -> Run:
        """Return the cached run with the key `job`; if there is none, make it in a new directory."""
        return self._all(job, lambda place: [make(place)])[0]

    def _all(self, job: str, make: Callable[[Path], list[Run]]) -> list[Run]:
        if job not in self._runs:
            self._runs[job] = self._shared(self.directory / hashlib.sha256(job.encode()).hexdigest()[:20], make)
        self.used.extend(self._runs[job])
        return self._runs[job]

    def _shared(self, place: Path, make: Callable[[Path], list[Run]]) -> list[Run]:
        """Return the runs that are stored beside the directory `place`; if there are none, make and store them."""
        record = place.with_suffix(".run")
        began = time.monotonic()
        # The first process that has the lock makes the run; the others wait, and read its record.
        with _locked(place.with_suffix(".lock"), self._patience) as locked:
            self._patience -= time.monotonic() - began
            if not locked:
                return make(Path(tempfile.mkdtemp(dir=self.directory)))
            if not record.exists():
                shutil.rmtree(place, ignore_errors=True)  # from a process that was killed
                place.mkdir(parents=True)
                _write(record, make(place))
        return _read(record)


def _copy(uninterrupted: Run, step: int, place: Path) -> Path:
    """Copy the directory of a run without later checkpoints, and return the copied checkpoint of a step.

    Raises:
        SkipTest: The checkpoint is not there, or has the same path as a later one.
    """
    home, reported = uninterrupted.job.directory, uninterrupted.checkpoints
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
    # torch.save, since pickle would share the memory of a tensor with this process by a file for each.
    torch.save((runs, sorted(seen), processes.current_trace()), partial)
    partial.replace(path)


def _read(path: Path) -> list[Run]:
    """Return stored runs, and count the code and files that their process used as used by this one.

    Else the dependencies of the claim would lack them, and a cached result would not become stale.
    """
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
