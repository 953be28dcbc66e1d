"""The exceptions of pv: user errors, failures of mutants and workers, and claims that are not made."""

from enum import Enum, IntEnum


class ExitCode(IntEnum):
    """The exit codes of `pv`. `worst` is the only place that chooses among them."""

    PASSED = 0
    FAILED = 1
    UNDECIDED = 2
    REFUSED = 3
    BUG = 70
    INTERRUPTED = 130

    @classmethod
    def worst(
        cls, *, interrupted: bool = False, refused: bool = False, failed: bool = False, undecided: bool = False
    ) -> "ExitCode":
        """Return the worst code that applies; `PASSED` if none does."""
        # The order of badness is not the order of the numbers: click and shells give 2 and 130 their meaning.
        if interrupted:
            return cls.INTERRUPTED
        if refused:
            return cls.REFUSED
        if failed:
            return cls.FAILED
        return cls.UNDECIDED if undecided else cls.PASSED


class PvError(Exception):
    """Root of every error that a user can cause; its text says what was read and what to try."""


class UsageError(PvError):
    """The command or call asks for something that cannot be done (a wrong option, a missing path)."""


class ProjectError(PvError):
    """The `[tool.pv]` table of a project cannot be used."""


class PluginError(PvError):
    """A package declares an engine, a suite or a report format that cannot be used."""


class KnownCause(AssertionError):
    """A refuted claim whose message names the cause, which was computed: a guess beside it says nothing more."""


class MutantProblem(Enum):
    """The reason why a mutant cannot be applied."""

    NO_DEFINITION = "no definition"
    """Its module does not define the name."""
    NO_MATCH = "no match"
    """Its `find` is not code, or does not occur exactly once."""
    INVALID_REPLACEMENT = "invalid replacement"
    """Its `replace` is not code, would change more than the place, or swaps in a function of other arguments."""
    NO_CHANGE = "no change"
    """Its `replace` reads like its `find`."""
    NOT_LOADED = "not loaded"
    """The code that it swaps or swaps in cannot be loaded, or its module was imported too early."""
    FORBIDDEN = "forbidden"
    """It tried to remove or write a file that it must not touch."""


class BrokenMutant(PvError):
    """A mutant that cannot be planted, or must not go on; `problem` says why."""

    def __init__(self, problem: MutantProblem, message: str) -> None:
        super().__init__(problem, message)  # both, so that it can be pickled
        self.problem = problem

    def __str__(self) -> str:
        return str(self.args[1])


class WorkerLost(PvError):
    """The process that starts the workers could not be started or went away for good."""


class NotClaimed(Exception):
    """A subject that turns out not to have what a claim is about, which no declaration says; the text says what."""
