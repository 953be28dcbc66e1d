"""The result of one trial of a claim. The verdict is decided in `pv.results`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class TrialStatus(Enum):
    """The status with which one trial of a claim ended."""

    HELD = "held"
    """Every requested example was tried and none refuted the claim."""
    REFUTED = "refuted"
    """An assertion of the falsifier failed."""
    RAISED = "raised"
    """The subject raised on a valid input."""
    FLAKY = "flaky"
    """The same input failed once and passed once."""
    NO_EXAMPLES = "no examples"
    """No valid example could be drawn."""
    NO_PREMISE = "no premise"
    """A premise of the claim does not hold, so the claim itself was not tried."""
    SKIPPED = "skipped"
    """The falsifier skipped itself, with a reason."""
    NOT_CLAIMED = "not claimed"
    """The subject declares, with a reason, that it does not make the claim."""
    INCONCLUSIVE = "inconclusive"
    """The search of a proof ended neither refuted nor complete, or any code would fulfil the equation."""
    ERROR = "error"
    """The falsifier itself raised, or could not be bound."""
    INVALID_MUTANT = "invalid mutant"
    """The mutant was never planted: its module was not imported, or its edit did not apply."""
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    CRASHED = "crashed"
    """The process was killed by a signal."""
    NO_RESULT = "no result"
    """The process ended without a result, with any exit status."""
    CANCELLED = "cancelled"
    """Nothing was tried: the validation was stopped first."""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code: a function, or one line that raised. The path is as reports show it."""

    path: str
    line: int
    end: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """An input that refuted the claim.

    Attributes:
        error: The type and text of the error.
        frames: The frames of the traceback in the project, the innermost last.
        shrunk: Whether the input was shrunk.
        blob: The blob with which Hypothesis replays the input; "" if there is none.
        hypothesis: The version of Hypothesis that made the blob.
    """

    # The arguments as JSON; see `pv.engines.encoding`.
    arguments: Mapping[str, Any]
    # Whether `decode` rebuilds the arguments.
    exact: bool
    error: str
    frames: tuple[str, ...] = ()
    shrunk: bool = False
    blob: str = ""
    hypothesis: str = ""
    # The call of the code with its values, as text.
    call: str = ""
    # The output of the example.
    printed: str = ""
    # The file that has the arguments if they are too long for a command line.
    file: str = ""
    # The code that the error is about, the closest first.
    code: tuple[Code, ...] = ()
    # Whether the error names its cause.
    explained: bool = False
    # The change to make; "" if none is known.
    right: str = ""

    @property
    def place(self) -> str:
        """Return the innermost frame outside of the suites of `pv`; "" if there is none."""
        return next((frame for frame in reversed(self.frames) if not in_suite(frame.partition(":")[0])), "")


def in_suite(path: str) -> bool:
    """Return whether a file as reports show it belongs to a suite of `pv`, wherever that is installed."""
    return "/pv/suites/" in f"/{path}"


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a worker: its head and tail, its size in bytes, and how many bytes were dropped between them."""

    head: str = ""
    tail: str = ""
    size: int = 0
    dropped: int = 0

    @property
    def text(self) -> str:
        between = f"\n... {self.dropped} bytes left out ...\n" if self.dropped else ""
        return self.head + between + self.tail


@dataclass(frozen=True, slots=True, kw_only=True)
class EquationMutant:
    """A one-symbol change of an equation: the equation, the position in its expression, the text before and after."""

    equation: str
    line: int
    column: int
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EquationMutants:
    """The number of equation mutants killed, their total number, and the survivors."""

    killed: int
    total: int
    survivors: tuple[EquationMutant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a result depends on besides its task and the files that were opened."""

    # The functions that ran, as `module:name`.
    functions: frozenset[str] = frozenset()
    # The file of every module whose functions are recorded, below the root.
    loaded: Mapping[str, str] = field(default_factory=dict)
    # Modules of the project that an import tried to load.
    asked: frozenset[str] = frozenset()
    # Python files that were read as text.
    texts: frozenset[str] = frozenset()
    # Folders whose entries were read.
    listed: frozenset[str] = frozenset()
    # Folders that were read to find the metadata of packages.
    metadata: frozenset[str] = frozenset()
    # Folders in which modules were looked up, with the names of the modules.
    searched: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Paths that code probed without opening them.
    looked: frozenset[str] = frozenset()
    # Files outside the root that were read.
    outside: frozenset[str] = frozenset()
    # Loaded libraries that read docstrings.
    readers: frozenset[str] = frozenset()
    # The reason why the list may be incomplete; "" if it is complete.
    unsure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One execution of one falsifier, on one device, against the subject or a mutant of it.

    Attributes:
        falsifier: Id of the claim.
        device: The device.
        status: The status with which the trial ended.
        mutant: Id of the mutant; None on the clean code.
        detail: The reason of the status as text; "" if there is none.
        valid: Number of examples that were tried.
        invalid: Number of examples that were rejected.
        counterexample: The input that refuted the claim.
        reached: The functions that ran, and with statement coverage the statements.
        files: The project files that the worker read, by path below the root.
        asked: Number of requested examples.
        mutant_reached: Whether the mutated function ran.
        seed: The seed of the examples.
        seconds: Wall time in seconds.
        peak_mib: Largest private memory of the worker and its descendants, in MiB.
        output: The output of the worker.
        equation_mutants: The result on mutants of the equation; None if none were tried.
    """

    falsifier: str
    device: str
    status: TrialStatus
    mutant: str | None = None
    detail: str = ""
    valid: int = 0
    invalid: int = 0
    counterexample: Counterexample | None = None
    reached: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    reads: Reads | None = None
    """None if the worker ended before it reported its reads."""
    asked: int = 0
    mutant_reached: bool = False
    seed: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU time of its worker and of every process below it. `seconds` are wall time, which depends on the load."""
    peak_mib: int = 0
    output: Output = Output()
    equation_mutants: EquationMutants | None = None
    current_arguments: Counterexample | None = None
    """The arguments of the call in which the worker ended without a result; they refute nothing, so it has no error."""
    untriable_but: frozenset[str] | None = None
    """Not None if the subject cannot be tried: then only claims that need one of these features may still be tried."""
    stopped: bool = False
    """True if the worker was killed at a limit before it returned a result; the detail names the limit."""
