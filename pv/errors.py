"""The exceptions and exit codes of pv."""

from enum import Enum, IntEnum


class ExitCode(IntEnum):
    """The exit codes of `pv`. `worst` chooses among them; `pv.cli.group` chooses the codes of exceptions."""

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
        # The numbers are not in this order: FAILED has 1, as in most tools, but is worse than UNDECIDED.
        if interrupted:
            return cls.INTERRUPTED
        if refused:
            return cls.REFUSED
        if failed:
            return cls.FAILED
        return cls.UNDECIDED if undecided else cls.PASSED


class PvError(Exception):
    """The base class of errors that a user can cause; the message says what is wrong and what to try."""


class UsageError(PvError):
    """A command or function was called with an invalid argument, such as a wrong option or a missing path."""


class ProjectError(PvError):
    """The `[tool.pv]` table of a project is invalid."""


class PluginError(PvError):
    """The entry point of an engine, a suite or a report format is invalid."""


class KnownCause(AssertionError):
    """A claim is refuted, and the message states the computed cause; reports then omit the author's guess."""


class MutantProblem(Enum):
    """The reason why a mutant cannot be applied."""

    NO_DEFINITION = "no definition"
    """The module does not define the function, or the object of a swap does not exist."""
    NO_MATCH = "no match"
    """`find` is not Python code, does not occur exactly once, or has no occurrence with the declared index."""
    INVALID_REPLACEMENT = "invalid replacement"
    """`replace` is not Python code, would change more than `find`, or is a function with other parameters."""
    NO_CHANGE = "no change"
    """`replace` has the same syntax tree as `find`."""
    NOT_LOADED = "not loaded"
    """The object or its replacement cannot be imported, or the module was imported before the import hook."""
    FORBIDDEN = "forbidden"
    """The mutant tried to write to the project, or to remove a file outside the folder of the workers."""


class BrokenMutant(PvError):
    """A mutant that cannot be applied, or that was stopped; `problem` says why."""

    def __init__(self, problem: MutantProblem, message: str) -> None:
        super().__init__(problem, message)  # both arguments, because `pickle` calls the class with `self.args`
        self.problem = problem

    def __str__(self) -> str:
        return str(self.args[1])


class WorkerLost(PvError):
    """The fork server, which starts the workers, did not start, was killed, or was killed too often."""


class NotClaimed(Exception):
    """The subject turned out at run time to lack a feature that the claim needs; the message names the feature."""
