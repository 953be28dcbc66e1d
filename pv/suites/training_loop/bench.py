"""Run jobs for the claims of the suite, and cache the runs: claims about a subject share them, also between processes.

The key of a run is the text of its job. A run is looked up in this process, then in a shared directory. The first
process that needs a run locks its key there, makes the run, and stores it; other processes wait and read it.
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
from pv.suites.training_loop.cases import COMBINABLE, equal
from pv.suites.training_loop.features import check_simplest_run, missing_features, restrict_job
from pv.suites.training_loop.job import Job, Trainer
from pv.suites.training_loop.processes import ForkServer, run_and_kill, run_ranks
from pv.suites.training_loop.run import Run, observe

WAIT_S = 20.0
"""Seconds that a bench waits in total for runs of other processes; after that it makes the runs itself.

A process that waited longer would be reported as hanging.
"""
SIMPLEST = Job(train=equal(4))
"""The job that every loop can run."""


def bench(subject: object, directory: Path | None) -> "Bench":
    """Return the bench of a trainer.

    Args:
        subject: An adapter, or a class of a known library.
        directory: As for `Bench`.

    Raises:
        NoAdapter: The subject is neither an adapter nor a known class; the text says what to write.
    """
    from pv.suites.training_loop.adapters import adapted

    return Bench(adapted(subject), directory)


class Bench(SuiteBench):
    """A trainer, with the runs of its jobs; a job is run once for all claims.

    Args:
        trainer: The adapter.
        directory: Where runs and their checkpoints are stored; None for a temporary directory. Processes with the same
            directory share runs.
    """

    warm_up_failure = "the loop cannot run the simplest job (an epoch of 4 examples of one length, in batches of 2)"
    """The message if `warm_up` raises."""
    independent_features = frozenset({"ranks"})
    """Features whose claims are tried even if `warm_up` raises for the claims that do not need them."""

    def __init__(self, trainer: Trainer, directory: Path | None = None) -> None:
        self.subject = self.trainer = trainer
        self.used: list[Run] = []
        self.directory = directory or Path(tempfile.mkdtemp())
        # The runs of this process, by the text of their job and how it was run; a run of several ranks is a list.
        self._runs: dict[str, list[Run]] = {}
        self._wait_left_s = WAIT_S
        self._warm = False
        self._is_fresh = directory is not None  # the process of one claim, which has run nothing
        self._fork_server: ForkServer | None = None

    @property
    def lacks(self) -> dict[str, str]:  # type: ignore[override]  # the base class stores it; here it follows the trainer
        """Return, by feature that the trainer does not have, the reason."""
        lacks = missing_features(self.trainer)
        # The claims about combinations, which need `pairs`, need two features to combine.
        if len(COMBINABLE.keys() - lacks.keys()) < 2:
            lacks["pairs"] = f"it has fewer than two of {', '.join(COMBINABLE)}"
        return lacks

    def warm_up(self, needs: Collection[str] = ()) -> None:
        """Run the simplest job once, so that a loop that cannot run at all is reported once, not by every claim.

        Args:
            needs: The features that the claim uses. Claims about ranks only need a loop that runs in two processes.

        Raises:
            Contradiction: The run shows a feature that the adapter declares to be missing.
            Placeholder: A part of the adapter that every claim needs is still a placeholder. Another SkipTest is
                ignored here, since it is reported by the claims that meet the same reason.
            Exception: Any error of the loop or its adapter, unless the claim is about ranks and the job runs in ranks.
        """
        from pv.suites.training_loop.adapters.handwritten import Placeholder

        if self._warm:
            return
        # Ranks are forked from a process that has run nothing, so the fork server starts before the first run.
        if self._is_fresh and "ranks" in needs:
            self._fork_server = ForkServer()
        seen_before = set(seen)
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
        # Do not count the code of this run as reached: only code that the claim itself reaches gets mutants.
        ran.update(seen - seen_before)
        seen.intersection_update(seen_before)
        self._runs.clear()
        self.used.clear()

    def _runs_in_ranks(self) -> bool:
        """Return whether the simplest job runs in two processes."""
        # Processes start slowly, so store a failure for the benches of all claims.
        failure = self.directory / "simplest-job-fails-in-ranks"
        if failure.exists():
            return False
        try:
            self.ranks(SIMPLEST, 2)
        except Exception:
            failure.touch()
            return False
        return True

    def run(self, job: Job) -> Run:
        """Return the run of a job.

        Args:
            job: The job; it is restricted to the features of the trainer, and gets another directory.

        Raises:
            SkipTest: The adapter ignores a setting of the job, the run does not end, or no steps are observed.
        """
        job = self._restrict(job)
        return self._cached_run(repr(job), lambda place: observe(self.trainer, replace(job, directory=place)))

    def rerun(self, job: Job) -> Run:
        """Run a job a second time, and return the run, to compare it with the first one.

        Args:
            job: The attribute `job` of the first run.
        """
        return self._cached_run(f"{job!r} again", lambda place: observe(self.trainer, replace(job, directory=place)))

    def resume(self, uninterrupted: Run, step: int, *, epochs: int | None = None) -> Run:
        """Return a run that resumes another run from a checkpoint, as if the process had been killed right after it.

        Args:
            uninterrupted: The run to resume. Its directory is copied without later checkpoints.
            step: The step of the checkpoint.
            epochs: The number of epochs of the resumed run; None for the number in the job.

        Raises:
            SkipTest: The adapter reports no such checkpoint.
        """

        def resume(place: Path) -> Run:
            saved = _copy(uninterrupted, step, place)
            job = replace(uninterrupted.job, directory=place, resume=saved)
            run = observe(self.trainer, job if epochs is None else replace(job, epochs=epochs))
            return replace(run, done=step)

        changed = "" if epochs is None else f", epochs {epochs}"
        return self._cached_run(f"{replace(uninterrupted.job, directory=Path())!r} from {step}{changed}", resume)

    def run_after(self, earlier: Run, job: Job) -> Run:
        """Return the run of a job from its first step, in a copy of the directory of an earlier run.

        Args:
            earlier: The earlier run.
            job: The job.
        """
        job = self._restrict(job)

        def run(place: Path) -> Run:
            shutil.copytree(earlier.job.directory, place, dirs_exist_ok=True, symlinks=True)
            return observe(self.trainer, replace(job, directory=place))

        return self._cached_run(f"{job!r} after {replace(earlier.job, directory=Path())!r}", run)

    def ranks(self, job: Job, size: int) -> list[Run]:
        """Run a job in several processes, and return the runs by rank.

        Args:
            job: The job.
            size: The number of processes.
        """
        job = self._restrict(job, size)
        return self._cached_ranks(
            f"{job!r} x {size}",
            lambda place: run_ranks(self.trainer, replace(job, directory=place), size, self._fork_server),
        )

    def resume_ranks(self, uninterrupted: list[Run], step: int) -> list[Run]:
        """Resume the runs of all ranks from a checkpoint, and return the resumed runs by rank.

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
            runs = run_ranks(self.trainer, resumed, len(uninterrupted), self._fork_server)
            return [replace(run, done=step) for run in runs]

        return self._cached_ranks(
            f"{replace(first.job, directory=Path())!r} x {len(uninterrupted)} from {step}", resume
        )

    def kill(self, uninterrupted: Run, operation: int) -> Path | None:
        """Run a job again and kill it at an operation on files.

        Args:
            uninterrupted: A run of the same job.
            operation: The number of the operation, from 0.

        Returns:
            The directory of the killed run; None if the run has fewer operations.
        """
        place = Path(tempfile.mkdtemp(dir=self.directory))
        job = replace(uninterrupted.job, directory=place)
        return place if run_and_kill(lambda: observe(self.trainer, job), place, operation) else None

    def resume_run(self, uninterrupted: Run, place: Path, saved: Path, *, saves: bool = True) -> Run:
        """Resume a killed run in its directory, and return the resumed run. Nothing is copied or stored.

        Args:
            uninterrupted: The uninterrupted run of the same job.
            place: The directory of the killed run.
            saved: The checkpoint in the directory.
            saves: Whether the resumed run saves checkpoints.
        """
        job = replace(uninterrupted.job, directory=place, resume=saved)
        self.used.append(observe(self.trainer, job if saves else replace(job, save_every=0)))
        return self.used[-1]

    def _restrict(self, job: Job, ranks: int = 1) -> Job:
        """Return the job with only the settings and examples that the trainer can run."""
        return restrict_job(job, missing_features(self.trainer), ranks)

    def _cached_run(self, key: str, make: Callable[[Path], Run]) -> Run:
        """Return the cached run with a key; if there is none, call `make` with a new directory."""
        return self._cached_ranks(key, lambda place: [make(place)])[0]

    def _cached_ranks(self, key: str, make: Callable[[Path], list[Run]]) -> list[Run]:
        """Return the cached runs with a key, one per rank, and record that the claim uses them."""
        if key not in self._runs:
            self._runs[key] = self._stored_runs(self.directory / hashlib.sha256(key.encode()).hexdigest()[:20], make)
        self.used.extend(self._runs[key])
        return self._runs[key]

    def _stored_runs(self, place: Path, make: Callable[[Path], list[Run]]) -> list[Run]:
        """Return the runs that are stored beside the directory `place`; if there are none, make and store them.

        Runs that no other process has finished in time are made in a directory of their own, and not stored.
        """
        record = place.with_suffix(".run")
        began = time.monotonic()
        # The first process that gets the lock makes the runs; the others wait for the lock, and read the record.
        with _locked(place.with_suffix(".lock"), self._wait_left_s) as locked:
            self._wait_left_s -= time.monotonic() - began
            if not locked:
                return make(Path(tempfile.mkdtemp(dir=self.directory)))
            if not record.exists():
                shutil.rmtree(place, ignore_errors=True)  # from a process that was killed
                place.mkdir(parents=True)
                _write(record, make(place))
        return _read(record)


def _copy(uninterrupted: Run, step: int, place: Path) -> Path:
    """Copy the directory of a run without the checkpoints after a step, and return the copied checkpoint of the step.

    Raises:
        SkipTest: The checkpoint does not exist, or has the same path as a later one.
    """
    home, reported = uninterrupted.job.directory, uninterrupted.checkpoints
    if step not in reported:
        raise SkipTest(f"the adapter reports no checkpoint of step {step}, after which one is due")
    later = {path for at, path in reported.items() if at > step}
    statement = f"the adapter reports {reported[step]} as the checkpoint of step {step}"
    if reported[step] in later:
        raise SkipTest(f"{statement}, and of a later step: report a path of its own for each, such as a copy")
    if not (reported[step].is_relative_to(home) and reported[step].exists()):
        raise SkipTest(f"{statement}, and no such file exists in {home} when the run ends: do not remove it")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(folder, name) in later}

    shutil.copytree(home, place, dirs_exist_ok=True, symlinks=True, ignore=ignored)
    return place / reported[step].relative_to(home)


def _write(path: Path, runs: list[Run]) -> None:
    """Store runs, with the code and files that this process has used, atomically in a file."""
    partial = path.with_suffix(".partial")
    # torch.save, since pickle would write a storage once for each tensor that views it.
    torch.save((runs, sorted(seen), processes.current_trace()), partial)
    partial.replace(path)


def _read(path: Path) -> list[Run]:
    """Return stored runs, and record the code and files that their process used as used by this process.

    Otherwise they would be missing from the dependencies of the claim: its cached result would stay valid when they
    change.
    """
    runs, reached, trace = torch.load(path, weights_only=False)
    seen.update(reached)
    processes.use(trace)
    return cast("list[Run]", runs)


@contextmanager
def _locked(path: Path, wait_s: float) -> Iterator[bool]:
    """Lock a file inside the context; wait for the lock for at most `wait_s` seconds. Yield whether it is locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + wait_s
    with path.open("w") as file:
        while not (locked := _lock(file.fileno())) and time.monotonic() < end:
            time.sleep(0.05)
        yield locked


def _lock(descriptor: int) -> bool:
    """Try to lock a file without waiting, and return whether it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
