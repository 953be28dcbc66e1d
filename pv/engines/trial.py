"""The result of one trial of a claim. `pv.results` computes verdicts from trials."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class TrialStatus(Enum):
    """The status with which one trial of a claim ended."""

    HELD = "held"
    """At least one valid example was tried, and no example refuted the claim; or a proof is complete."""
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
    """The claim was not tried, for the reason in `detail`, such as a test that skips itself."""
    NOT_CLAIMED = "not claimed"
    """The subject does not make the claim: it declares so with a reason, or lacks a feature that the claim needs."""
    INCONCLUSIVE = "inconclusive"
    """A proof was neither completed nor refuted, or the tolerance of an equation is too wide to refute any code."""
    ERROR = "error"
    """The falsifier itself raised, or could not be bound."""
    INVALID_MUTANT = "invalid mutant"
    """The mutant could not be tried.

    It was never planted, because its module was not imported or its edit did not apply; or it used an undefined name or
    a replacement that fails in every call; or the write guard stopped it.
    """
    TIMEOUT = "timeout"
    """The time limit was reached, by the worker or by a proof."""
    OUT_OF_MEMORY = "out of memory"
    CRASHED = "crashed"
    """The process was killed by a signal."""
    NO_RESULT = "no result"
    """The process ended without a result, with any exit status."""
    CANCELLED = "cancelled"
    """The claim was not tried, because the validation was stopped first."""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code that an error is about: a function, or the line that raised.

    Attributes:
        path: The file, in the form that reports show.
        line: The first line.
        end: The last line.
        name: The name of the function.
    """

    path: str
    line: int
    end: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """An input that refuted the claim.

    Attributes:
        arguments: The arguments as JSON; see `pv.engines.encoding`.
        exact: Whether `decode` rebuilds the arguments.
        error: The type and text of the error.
        frames: The frames of the traceback in the project, the innermost last.
        shrunk: Whether the input was shrunk.
        blob: The blob with which Hypothesis replays the input; "" if there is none.
        hypothesis: The version of Hypothesis that created the blob.
        call: The call of the code with its values, as text.
        printed: The output of the example.
        file: The file with the arguments, if they are too long for a command line.
        code: The code that the error is about, starting with the code closest to the error.
        explained: Whether `error` already names the cause.
        right: The correct code or setting, as text; "" if none is known.
    """

    arguments: Mapping[str, Any]
    exact: bool
    error: str
    frames: tuple[str, ...] = ()
    shrunk: bool = False
    blob: str = ""
    hypothesis: str = ""
    call: str = ""
    printed: str = ""
    file: str = ""
    code: tuple[Code, ...] = ()
    explained: bool = False
    right: str = ""

    @property
    def place(self) -> str:
        """Return the innermost frame outside of the suites of `pv`; "" if there is none."""
        return next((frame for frame in reversed(self.frames) if not in_suite(frame.partition(":")[0])), "")


def in_suite(path: str) -> bool:
    """Return whether a path, in the form that reports show, belongs to a suite of `pv`."""
    return "/pv/suites/" in f"/{path}"


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a worker.

    Attributes:
        head: The start of the output.
        tail: The end of the output, if it is longer than the head.
        size: The size of the whole output in bytes.
        dropped: The number of bytes that were dropped between head and tail.
    """

    head: str = ""
    tail: str = ""
    size: int = 0
    dropped: int = 0

    @property
    def text(self) -> str:
        """Return the output with a note in place of the dropped bytes."""
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
    """The number of killed equation mutants, the number of all equation mutants, and the survivors."""

    killed: int
    total: int
    survivors: tuple[EquationMutant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The dependencies of a result, in addition to its task and the files that were opened.

    Attributes:
        functions: The functions that ran, as `module:name`.
        loaded: The file, relative to the root, of each module whose functions are recorded.
        asked: Modules of the project that an import tried to load.
        texts: Python files that were read as text.
        listed: Folders whose entries were read.
        metadata: Folders that were read to find the metadata of packages.
        searched: The names of the modules that were looked up in each folder.
        looked: Paths that code probed without opening them.
        outside: Files outside the root that were read.
        readers: Loaded libraries that read docstrings.
        unsure: The reason why the dependencies may be incomplete; "" if they are complete.
    """

    functions: frozenset[str] = frozenset()
    loaded: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()
    searched: Mapping[str, frozenset[str]] = field(default_factory=dict)
    looked: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    unsure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One execution of one falsifier, on one device, against the subject or a mutant of it.

    Attributes:
        falsifier: Id of the claim.
        device: The device.
        status: The status with which the trial ended.
        mutant: Id of the mutant; None on the clean code.
        detail: The reason for the status as text; "" if there is none.
        valid: Number of examples that were tried.
        invalid: Number of examples that were rejected.
        counterexample: The input that refuted the claim.
        reached: The functions that ran; with statement coverage, also the statements.
        files: The project files that the worker read, as paths below the root.
        reads: The other dependencies; None if the worker ended before it reported them.
        asked: Number of requested examples.
        mutant_reached: Whether the mutated function ran.
        seed: The seed of the examples.
        seconds: Wall time in seconds, which depends on the load of the machine.
        cpu_s: CPU time of the worker and its descendants, in seconds.
        peak_mib: Largest private memory of the worker and its descendants, in MiB.
        output: The output of the worker.
        equation_mutants: The result on mutants of the equation; None if no mutants were tried.
        current_arguments: The arguments of the call in which the worker ended without a result. Since they do not
            refute the claim, `error` is "".
        independent_features: Set if the trial showed that a suite cannot try its subject: the features whose claims can
            be tried nevertheless. None if the subject can be tried.
        stopped: Whether the worker was killed at a limit before it returned a result; `detail` names the limit.
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
    asked: int = 0
    mutant_reached: bool = False
    seed: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mib: int = 0
    output: Output = Output()
    equation_mutants: EquationMutants | None = None
    current_arguments: Counterexample | None = None
    independent_features: frozenset[str] | None = None
    stopped: bool = False
