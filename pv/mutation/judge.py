"""Derive the status of an automatic mutant from its trials."""

from dataclasses import dataclass
from enum import Enum

from pv.mutation.generate import Automatic
from pv.results.trial import Trial, TrialStatus

LEAST_LIMIT_S, SLOWER = 5.0, 5.0
LIMITS = {TrialStatus.TIMEOUT}
ERRORS = {
    TrialStatus.ERROR,
    TrialStatus.FLAKY,
    TrialStatus.NO_EXAMPLES,
    TrialStatus.CRASHED,
    TrialStatus.NO_RESULT,
    TrialStatus.OUT_OF_MEMORY,
}


class MutantStatus(Enum):
    """The status of a generated mutant."""

    KILLED = "killed"
    TIMEOUT = "timeout"
    ERROR = "error"
    """The falsifier raised, crashed, produced no result, or ran out of memory."""
    SURVIVED = "survived"
    NO_COVERAGE = "no coverage"
    EQUIVALENT = "equivalent"
    """Declared equivalent, and not killed by any falsifier that executes it."""
    NOT_EQUIVALENT = "not equivalent"
    """Declared equivalent, but killed by a falsifier."""
    INVALID = "invalid"
    """It breaks the import of its module, or uses an undefined name."""


DETECTED = (MutantStatus.KILLED, MutantStatus.TIMEOUT, MutantStatus.ERROR, MutantStatus.NOT_EQUIVALENT)
UNDETECTED = (MutantStatus.SURVIVED, MutantStatus.NO_COVERAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A generated mutant with its status, the falsifiers that were tried, and the error of the last of them.

    cached: a result of an earlier run gave the status.
    """

    mutant: Automatic
    status: MutantStatus
    tried: tuple[str, ...] = ()
    seen: str = ""
    cached: bool = False


def limit_on_mutant(clean: Trial) -> float:
    """Return the limit in seconds on a mutant for a falsifier with the trial `clean` on the clean code.

    Several processes use more CPU time than wall time, and a falsifier that waits more wall time than CPU time.
    """
    return max(LEAST_LIMIT_S, SLOWER * max(clean.seconds, clean.cpu_s))


def status(trial: Trial) -> MutantStatus | None:
    """Return the status that one trial gives the mutant; None where it held and the next falsifier is tried."""
    if trial.status in (TrialStatus.REFUTED, TrialStatus.RAISED):
        return MutantStatus.KILLED
    if (
        trial.counterexample is not None
        and trial.status in (*LIMITS, *ERRORS)
        and trial.status is not TrialStatus.ERROR
    ):
        return MutantStatus.KILLED
    if trial.status in LIMITS:
        return MutantStatus.TIMEOUT
    if trial.status is TrialStatus.INVALID_MUTANT or (trial.status is TrialStatus.ERROR and _never_ran(trial)):
        return MutantStatus.INVALID
    return MutantStatus.ERROR if trial.status in ERRORS else None


def _never_ran(trial: Trial) -> bool:
    """Return whether the import failed, so that no example was tried."""
    return not (trial.valid or trial.asked)


def error_line(trial: Trial) -> str:
    """Return the error of a trial, in one line."""
    text = trial.counterexample.error if trial.counterexample is not None else trial.detail
    return text.splitlines()[0][:200] if text else trial.status.value
