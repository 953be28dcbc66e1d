"""Run jobs for the claims of the suite, and cache the runs. Claims about a subject share its runs between processes.

The key of a run is the text of its job and of how it was run. A run is looked up in this process, then in a shared
directory. The first process that needs a run locks a file in the directory, runs the job, and stores the run; other
processes wait for the lock, at most `WAIT_S`, and read the stored run.
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
"""Total time in seconds that a bench waits for runs of other processes. After this time it runs the jobs itself.

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
    """A trainer with a cache of its runs: every job is run once for all claims.

    Args:
        trainer: The adapter.
        directory: The directory for runs and their checkpoints; None for a temporary directory. Processes with the same
            directory share runs.
    """

    warm_up_failure = "the loop cannot run the simplest job (an epoch of 4 examples of one length, in batches of 2)"
    """The message if `warm_up` raises."""
    independent_features = frozenset({"ranks"})
    """Claims that need one of these features are tried even if `warm_up` raises for other claims."""

    def __init__(self, trainer: Trainer, directory: Path | None = None) -> None:
        self.subject = self.trainer = trainer
        self.used: list[Run] = []
        self.directory = directory or Path(tempfile.mkdtemp())
        # The runs of this process, one per rank. The key is the text of the job, and of how it was run.
        self._runs: dict[str, list[Run]] = {}
        self._wait_left_s = WAIT_S
        self._is_warmed_up = False
        # A bench with a directory is created in the process of a single claim, which has not run anything before.
        self._is_fresh = directory is not None
        self._fork_server: ForkServer | None = None

    @property
    def lacks(self) -> dict[str, str]:  # type: ignore[override]  # the base class stores it; here it follows the trainer
        """Return the reason for every feature that the trainer does not have."""
        lacks = missing_features(self.trainer)
        # The feature `pairs` means that at least two features can be combined.
        if len(COMBINABLE.keys() - lacks.keys()) < 2:
            lacks["pairs"] = f"the trainer has fewer than two of {', '.join(COMBINABLE)}"
        return lacks

    def warm_up(self, needs: Collection[str] = ()) -> None:
        """Run the simplest job once, so that a loop that cannot run at all is reported once, not by every claim.

        If the run raises another SkipTest than `Placeholder`, the exception is ignored: claims that meet the same
        reason report it.

        Args:
            needs: The features that the claim uses.

        Raises:
            Contradiction: The run shows a feature that the adapter declares to be missing.
            Placeholder: A part of the adapter that every claim needs is still a placeholder.
            Exception: Any other error of the loop or its adapter. For a claim about ranks, an error is ignored if it is
                no `PvError` and the job runs in two processes.
        """
        from pv.suites.training_loop.adapters.handwritten import Placeholder

        if self._is_warmed_up:
            return
        # Ranks must be forked from a process that has not run a job, so the fork server starts before the first run.
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
        self._is_warmed_up = True
        # The code of this run does not count as reached: only code that the claim itself reaches gets mutants.
        ran.update(seen - seen_before)
        seen.intersection_update(seen_before)
        self._runs.clear()
        self.used.clear()

    def _runs_in_ranks(self) -> bool:
        """Return whether the simplest job runs in two processes."""
        # Starting processes is slow, so a failure is stored for the benches of all claims.
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
            job: The job; it is restricted to the features of the trainer, and its directory is replaced.

        Raises:
            SkipTest: The adapter ignores a setting of the job, the run does not end, or no steps are observed.
            TypeError: The adapter returns no report, or the model of the report does not contain `job.model()`.
        """
        job = self._restrict(job)
        return self._cached_run(repr(job), lambda path: observe(self.trainer, replace(job, directory=path)))

    def rerun(self, job: Job) -> Run:
        """Run a job a second time, and return the second run.

        Args:
            job: The attribute `job` of the first run.
        """
        return self._cached_run(f"{job!r} again", lambda path: observe(self.trainer, replace(job, directory=path)))

    def resume(self, uninterrupted: Run, step: int, *, epochs: int | None = None) -> Run:
        """Resume a run from a checkpoint, as if the process had been killed right after it saved the checkpoint.

        Args:
            uninterrupted: The run to resume. Its directory is copied without the checkpoints after `step`.
            step: The step of the checkpoint.
            epochs: The number of epochs of the resumed run; None for the number in the job.

        Returns:
            The resumed run.

        Raises:
            SkipTest: The checkpoint is not reported, does not exist, or has the same path as a later one.
        """

        def resume(directory: Path) -> Run:
            checkpoint = _copy(uninterrupted, step, directory)
            job = replace(uninterrupted.job, directory=directory, resume=checkpoint)
            run = observe(self.trainer, job if epochs is None else replace(job, epochs=epochs))
            return replace(run, done=step)

        changed = "" if epochs is None else f", epochs {epochs}"
        return self._cached_run(f"{replace(uninterrupted.job, directory=Path())!r} from {step}{changed}", resume)

    def run_after(self, earlier: Run, job: Job) -> Run:
        """Run a job from its first step in a copy of the directory of an earlier run, and return the new run.

        Args:
            earlier: The earlier run.
            job: The job.
        """
        job = self._restrict(job)

        def run(directory: Path) -> Run:
            shutil.copytree(earlier.job.directory, directory, dirs_exist_ok=True, symlinks=True)
            return observe(self.trainer, replace(job, directory=directory))

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
            lambda path: run_ranks(self.trainer, replace(job, directory=path), size, self._fork_server),
        )

    def resume_ranks(self, uninterrupted: list[Run], step: int) -> list[Run]:
        """Resume the runs of all ranks from a checkpoint, and return the resumed runs by rank.

        Args:
            uninterrupted: The uninterrupted runs, by rank.
            step: The step of the checkpoint.

        Raises:
            SkipTest: The checkpoint is not reported, does not exist, or has the same path as a later one.
        """
        first = uninterrupted[0]

        def resume(directory: Path) -> list[Run]:
            job = replace(first.job, directory=directory, resume=_copy(first, step, directory))
            runs = run_ranks(self.trainer, job, len(uninterrupted), self._fork_server)
            return [replace(run, done=step) for run in runs]

        return self._cached_ranks(
            f"{replace(first.job, directory=Path())!r} x {len(uninterrupted)} from {step}", resume
        )

    def kill(self, uninterrupted: Run, operation: int) -> Path | None:
        """Run a job again, and kill the run at an operation on files.

        Args:
            uninterrupted: A run of the job.
            operation: The number of the operation, from 0.

        Returns:
            The directory of the killed run; None if the run has fewer operations.

        Raises:
            SkipTest: The run raises or hangs in its process.
        """
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        job = replace(uninterrupted.job, directory=directory)
        return directory if run_and_kill(lambda: observe(self.trainer, job), directory, operation) else None

    def resume_run(self, uninterrupted: Run, directory: Path, checkpoint: Path, *, saves: bool = True) -> Run:
        """Resume a killed run in its directory, and return the resumed run. Nothing is copied or stored.

        Args:
            uninterrupted: The uninterrupted run of the same job.
            directory: The directory of the killed run.
            checkpoint: The path of a checkpoint in the directory.
            saves: Whether the resumed run saves checkpoints.
        """
        job = replace(uninterrupted.job, directory=directory, resume=checkpoint)
        self.used.append(observe(self.trainer, job if saves else replace(job, save_every=0)))
        return self.used[-1]

    def _restrict(self, job: Job, ranks: int = 1) -> Job:
        """Return the job with only the settings and examples that the trainer can run."""
        return restrict_job(job, missing_features(self.trainer), ranks)

    def _cached_run(self, key: str, make: Callable[[Path], Run]) -> Run:
        """Return the cached run for a key. If there is none, call `make` with a new directory, and cache its run."""
        return self._cached_ranks(key, lambda path: [make(path)])[0]

    def _cached_ranks(self, key: str, make: Callable[[Path], list[Run]]) -> list[Run]:
        """Return the cached runs for a key, one per rank, and record that the claim uses them.

        If there are none, call `make` with a new directory, and cache its runs.
        """
        if key not in self._runs:
            self._runs[key] = self._stored_runs(self.directory / hashlib.sha256(key.encode()).hexdigest()[:20], make)
        self.used.extend(self._runs[key])
        return self._runs[key]

    def _stored_runs(self, directory: Path, make: Callable[[Path], list[Run]]) -> list[Run]:
        """Return the runs that are stored beside a directory. If there are none, call `make` and store its runs.

        If another process still holds the lock after the waiting time, the runs are made in a temporary directory, and
        not stored.
        """
        record = directory.with_suffix(".run")
        began = time.monotonic()
        # The first process that gets the lock makes the runs. Other processes wait for the lock, and read the record.
        with _locked(directory.with_suffix(".lock"), self._wait_left_s) as locked:
            self._wait_left_s -= time.monotonic() - began
            if not locked:
                return make(Path(tempfile.mkdtemp(dir=self.directory)))
            if not record.exists():
                shutil.rmtree(directory, ignore_errors=True)  # may be left from a process that was killed
                directory.mkdir(parents=True)
                _write(record, make(directory))
        return _read(record)


def _copy(uninterrupted: Run, step: int, directory: Path) -> Path:
    """Copy the directory of a run to `directory`, without the checkpoints after a step.

    Returns:
        The path of the copied checkpoint of the step.

    Raises:
        SkipTest: The checkpoint is not reported, does not exist in the directory of the run, or has the same path as a
            later one.
    """
    source, reported = uninterrupted.job.directory, uninterrupted.checkpoints
    if step not in reported:
        raise SkipTest(f"the adapter reports no checkpoint of step {step}, although one is due")
    later = {path for at, path in reported.items() if at > step}
    statement = f"the adapter reports {reported[step]} as the checkpoint of step {step}"
    if reported[step] in later:
        raise SkipTest(f"{statement}, and of a later step: report a separate path for each step, such as a copy")
    if not (reported[step].is_relative_to(source) and reported[step].exists()):
        raise SkipTest(f"{statement}, and no such file exists in {source} when the run ends: do not remove the file")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(folder, name) in later}

    shutil.copytree(source, directory, dirs_exist_ok=True, symlinks=True, ignore=ignored)
    return directory / reported[step].relative_to(source)


def _write(path: Path, runs: list[Run]) -> None:
    """Write runs, with the code and files that this process has used, atomically to a file."""
    partial = path.with_suffix(".partial")
    # torch.save, since pickle would write the storage of several views once for each view.
    torch.save((runs, sorted(seen), processes.current_trace()), partial)
    partial.replace(path)


def _read(path: Path) -> list[Run]:
    """Return stored runs, and record that this process depends on the code and files that the stored runs used.

    Otherwise the cached result of the claim would stay valid when this code or these files change.
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
        while not (locked := _try_lock(file.fileno())) and time.monotonic() < end:
            time.sleep(0.05)
        yield locked


def _try_lock(descriptor: int) -> bool:
    """Try to lock a file without waiting. Return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
