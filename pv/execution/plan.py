"""The interface between a command and the executor: plans of attempts, their steps, and the events of the executor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pv.engines.trial import Trial
from pv.execution.attempt import Attempt
from pv.mutation.judge import Judged


@dataclass(frozen=True, slots=True)
class Queued:
    """An attempt waits for a worker."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has started an attempt. An attempt may start again, if its fork server was killed."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt has a trial.

    Attributes:
        attempt: The attempt.
        trial: The trial of the attempt.
        reused: Whether the trial was measured for another attempt, so that no worker has run this attempt.
        run: The trial of the run whose record the claim read; None if it read none, or if the trial is reused.
        directory: The directory with the record of a run, if the attempt has executed a run.
    """

    attempt: Attempt
    trial: Trial
    reused: bool = False
    run: Trial | None = None
    directory: Path | None = None

    @property
    def combined_trial(self) -> Trial:
        """The trial, combined with the coverage, the times and the files of the run that the claim read."""
        # The code under contract ran in the worker of the run; the worker of the claim has only read the record.
        trial, run = self.trial, self.run
        if run is None:
            return trial
        seconds, cpu_s, files = trial.seconds + run.seconds, trial.cpu_s + run.cpu_s, trial.files | run.files
        return replace(trial, reached=run.reached, seconds=seconds, cpu_s=cpu_s, files=files)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An attempt was not run, because the executor was cancelled first.

    Attributes:
        attempt: The attempt.
        queued: Whether the attempt was waiting for a worker; False if the plan yielded it after the cancellation.
    """

    attempt: Attempt
    queued: bool


@dataclass(frozen=True, slots=True)
class Result:
    """A trial is the result of a claim on its device, or on a mutant.

    Attributes:
        attempt: The attempt whose trial is the result.
        trial: The trial of the attempt, after its confirmation, merged with the trial of the run that the claim read.
        failed: Whether the result makes --fail-fast stop the validation.
    """

    attempt: Attempt
    trial: Trial
    failed: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A step that ends queued attempts without running them, because an earlier trial determines their trials.

    Attributes:
        trial_of: Returns the trial of a queued attempt; None for an attempt that must be run.
    """

    trial_of: Callable[[Attempt], Trial | None]


Event = Queued | Started | Finished | Cancelled | Result | Judged
Step = Attempt | Answer | Result | Judged
"""An attempt to run, an answer to queued attempts, or an event (`Result`, `Judged`) to send to the consumers."""
Consumer = Callable[[Event], None]
Order = Callable[[Attempt], tuple[int, float]]
"""Returns the sort key of an attempt."""


class AttemptPlan(Protocol):
    """The steps of a command: the first steps, and the steps that follow from the end of every attempt."""

    def start(self) -> Iterable[Step]:
        """Return the first steps."""

    def follow(self, event: Finished | Cancelled) -> Iterable[Step]:
        """Return the steps that follow from the end of an attempt."""
