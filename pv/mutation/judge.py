"""Derive the status of a generated mutant from its trials; the result of a mutation run."""

from dataclasses import dataclass
from enum import Enum

from pv.contract.model import Contract
from pv.engines.trial import Trial, TrialStatus
from pv.mutation.generate import GeneratedMutant

MIN_LIMIT_S = 5.0
"""The smallest limit of a falsifier on a mutant, in seconds."""
LIMIT_FACTOR = 5.0
"""Limit of a falsifier on a mutant, as a multiple of its time on the clean code."""
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
    """The last trial was flaky, had no example, crashed, ran out of memory, gave no result, or its falsifier raised."""
    SURVIVED = "survived"
    NO_COVERAGE = "no coverage"
    EQUIVALENT = "equivalent"
    """Declared equivalent, and not killed by any falsifier that executes it."""
    NOT_EQUIVALENT = "not equivalent"
    """Declared equivalent, but killed by a falsifier."""
    INVALID = "invalid"
    """The mutant breaks the import of its module, uses an undefined name, or removes or writes a forbidden file."""


DETECTED = (MutantStatus.KILLED, MutantStatus.TIMEOUT, MutantStatus.ERROR, MutantStatus.NOT_EQUIVALENT)
UNDETECTED = (MutantStatus.SURVIVED, MutantStatus.NO_COVERAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A generated mutant with its status.

    Attributes:
        mutant: The mutant.
        status: Its status.
        tried: Ids of the falsifiers that were tried on the mutant, in order.
        seen: The error of the last trial; "" if the claim held.
        cached: Whether the status comes from a cached trial of an earlier run.
    """

    mutant: GeneratedMutant
    status: MutantStatus
    tried: tuple[str, ...] = ()
    seen: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """The generated mutants of a contract with their statuses.

    Attributes:
        contract: The contract whose code was mutated.
        falsifiers: Ids of the falsifiers that judged the mutants.
        total: The number of generated mutants.
        judged: The mutants that were judged: all, or a sample.
        unfit: Trials of falsifiers that do not hold on the clean code and were therefore not used.
        unused: Declared equivalents that match no generated mutant.
        idle: Modules in `mutation_scope` whose code no falsifier executes.
        scope: The modules that `mutation_scope` names.
        files: The project files that were read.
        restricted: Whether the falsifiers or modules were selected, so that the result is not the contract's score.
        unrecorded: Whether the score was not recorded because of its problems.
        elsewhere: The reason why no module is mutated, such as a selection without a matching module; "" otherwise.
    """

    contract: Contract
    falsifiers: tuple[str, ...]
    total: int
    judged: tuple[Judged, ...]
    unfit: tuple[Trial, ...] = ()
    unused: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    restricted: bool = False
    unrecorded: bool = False
    elsewhere: str = ""

    @property
    def whole(self) -> bool:
        """Return whether every generated mutant of the contract was tried."""
        return not self.restricted and len(self.judged) == self.total

    def count(self, *statuses: MutantStatus) -> int:
        """Return the number of mutants with one of these statuses."""
        return sum(judged.status in statuses for judged in self.judged)


def limit_on_mutant(clean: Trial) -> float:
    """Return the limit in seconds for a falsifier on a mutant.

    Args:
        clean: The trial of the falsifier on the clean code.
    """
    # Take the larger time: several processes use more CPU time than wall time, and a waiting falsifier uses less.
    return max(MIN_LIMIT_S, LIMIT_FACTOR * max(clean.seconds, clean.cpu_s))


def status(trial: Trial) -> MutantStatus | None:
    """Return the status that one trial gives a mutant; None to try the next falsifier, such as if the claim held.

    Args:
        trial: The trial of a falsifier on the mutant.
    """
    if trial.status in (TrialStatus.REFUTED, TrialStatus.RAISED):
        return MutantStatus.KILLED
    # Evidence is streamed: a counterexample that was found before a limit or a crash kills the mutant.
    if trial.counterexample is not None and trial.status in {TrialStatus.TIMEOUT, *ERRORS} - {TrialStatus.ERROR}:
        return MutantStatus.KILLED
    if trial.status is TrialStatus.TIMEOUT:
        return MutantStatus.TIMEOUT
    # An error before the first example means that the import failed.
    never_ran = trial.status is TrialStatus.ERROR and not (trial.valid or trial.asked)
    if trial.status is TrialStatus.INVALID_MUTANT or never_ran:
        return MutantStatus.INVALID
    return MutantStatus.ERROR if trial.status in ERRORS else None


def final_status(last: MutantStatus | None, *, equivalent: bool) -> MutantStatus:
    """Return the status of a mutant after its last trial.

    Args:
        last: The status that the last trial gives, or the status of a mutant without trials; None if the claim held.
        equivalent: Whether the contract declares the mutant equivalent.
    """
    if last in DETECTED and equivalent:
        return MutantStatus.NOT_EQUIVALENT
    if last is None:
        return MutantStatus.EQUIVALENT if equivalent else MutantStatus.SURVIVED
    return last


def error_line(trial: Trial) -> str:
    """Return the first line of the error of a trial, at most 200 characters; the trial status if there is no text."""
    text = trial.counterexample.error if trial.counterexample is not None else trial.detail
    return text.splitlines()[0][:200] if text else trial.status.value
