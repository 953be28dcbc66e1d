"""The base class of an engine, and the interface of the worker that runs its attack.

`pv lint` and `pv --help` import the module of every engine, so these modules import neither torch nor Hypothesis;
`attack` imports its libraries inside the worker. `pv.engines.registry` lists all engines.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pv.contract.model import Contract, Falsifier, Mutant, Run
from pv.contract.wording import count
from pv.engines.code import Function, ResolvedCode
from pv.engines.failures import FailureClassifier
from pv.engines.rule import Rule
from pv.engines.stream import Record, Stream
from pv.engines.trial import Trial, TrialStatus

P = TypeVar("P")
"""The payload type of an engine."""
ENDED_EARLY = (TrialStatus.TIMEOUT, TrialStatus.OUT_OF_MEMORY, TrialStatus.CRASHED, TrialStatus.NO_RESULT)
"""The statuses of trials whose worker ended before it returned a record."""


class Depends(Enum):
    """The part of the loaded code on which the result of a worker depends."""

    FUNCTIONS = "functions"
    """The module-level code that ran at import, and the functions that ran."""
    MODULES = "modules"
    """The whole source of the loaded modules, because the attack reads the source, as a solver does."""
    SHARED = "shared"
    """As `FUNCTIONS`, plus the functions that ran in other workers, whose cached runs this worker may have used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The settings with which one worker tries one claim.

    Attributes:
        device: The device.
        examples: The number of examples; None for the number that the claim states.
        seed: The seed that the user chose; an engine combines it with the id of the claim.
        mutant: The mutant to plant; None for the clean code.
        replay: The example to replay, VERSION:BLOB or exact arguments as a JSON object; "" for none.
        execute: The arguments with which the worker executes the reference run of the claim before the attack; None if
            another worker has executed the run, or the claim reads none.
        statements: Whether to record every statement that is reached.
        guarded: Whether to refuse writes to files of the project.
    """

    device: str = "cpu"
    examples: int | None = None
    seed: int = 0
    mutant: Mutant | None = None
    replay: str = ""
    execute: Mapping[str, Any] | None = None
    statements: bool = False
    guarded: bool = False


class Worker(Protocol):
    """The services of a worker that an attack uses."""

    device: str
    mutated: bool
    """True if a mutant is applied: the first refutation is then enough."""
    failures: FailureClassifier
    """Decides whether an exception refutes the claim or is an error of the falsifier."""
    stream: Stream
    """Sends intermediate results to the parent process, which keeps them if the worker is killed."""

    @property
    def subject_module(self) -> str:
        """Return the name of the module of the subject."""

    @property
    def shared(self) -> Path | None:
        """Return the folder that all workers on the same subject share; None if a mutant is applied."""

    def subject(self) -> Any:
        """Return the subject, imported from the file to which lint resolved its module."""

    def function(self, described: Function) -> Any:
        """Return the described function, imported from the file to which lint resolved its module."""

    def ready(self) -> None:
        """Mark the end of the imports: code that runs after this call counts as executed by the attack."""


class Engine(ABC, Generic[P]):
    """One engine: the claims that it takes, its payload, its attack, its lint rules and its descriptions."""

    name: ClassVar[str]
    section: ClassVar[str]
    """The key of the contract that lists the claims of this engine."""
    keys: ClassVar[tuple[str, ...]] = ()
    """The keys of a claim that only this engine reads, from `claim.options`."""
    schema: ClassVar[Mapping[str, Any]] = {}
    """The JSON Schema of each key in `keys`, for engines of other packages; `contract.json` has the keys of `pv`."""
    payload_type: ClassVar[type]
    """The frozen dataclass that travels to the worker as JSON."""
    bound: ClassVar[bool] = True
    """Whether the claims are bound to code and can be tried; False for claims in prose."""
    proves: ClassVar[bool] = False
    """Whether the claims are proofs. A complete search then means `proved`, not `held`, and a recorded proof counts if
    the search reaches its limit."""
    confirms: ClassVar[bool] = False
    """Whether a counterexample counts only after it is confirmed in a fresh worker."""
    timeout_kills: ClassVar[bool] = True
    """Whether a timeout on a mutant kills it."""
    replays_arguments: ClassVar[bool] = False
    """Whether a counterexample is replayed by its arguments; otherwise by Hypothesis's blob."""
    replays: ClassVar[bool] = True
    """Whether `--replay` can repeat the examples of this engine."""
    asserts: ClassVar[bool] = False
    """Whether the return value of a test is ignored. Lint then checks that the test asserts and returns nothing, and
    that `parameters` or `@given` supplies each of its parameters."""
    depends_on: ClassVar[Depends] = Depends.FUNCTIONS
    """The part of the loaded code on which a cached result depends."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """The lint rules about the keys that only this engine reads."""

    @abstractmethod
    def takes(self, claim: Falsifier) -> bool:
        """Return whether this engine can try the claim. The first such engine in the registry tries the claim."""

    @abstractmethod
    def payload(self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> P:
        """Build the payload for the worker.

        Args:
            code: The subject and its files.
            contract: The contract of the claim.
            claim: The claim.
            conditions: The device, the number of examples, the seed and the other settings of the trial.

        Raises:
            Unbound: A name in the claim cannot be resolved.
        """

    @abstractmethod
    def attack(self, payload: P, worker: Worker) -> Record:
        """Try the claim inside a worker; return the fields of the last record that the worker sends."""

    def binding(self, claim: Falsifier) -> str:
        """Return the test or equation that tries the claim, as text for people."""
        return str(claim.test)

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        """Return the names of the parameters that the function of the claim must accept."""
        # Without a parameter `device`, the test would run on the CPU for every device that the claim lists.
        device = () if claim.devices == ("cpu",) else ("device",)
        return ("subject", *device)

    def judged(self, claim: Falsifier) -> bool:
        """Return whether the claim needs a killed mutant, which shows that the claim can fail."""
        return True

    def preloads(self, contract: Contract, claim: Falsifier) -> tuple[str, ...]:
        """Return the modules that the fork server loads for a claim."""
        return ()

    def run_of(self, contract: Contract, claim: Falsifier) -> Run | None:
        """Return the reference run that the claim reads, if any. Raise `UnknownName` if the run is not declared."""
        return None

    def soft_limit_s(self, claim: Falsifier) -> float:
        """Return the limit that the contract sets for the whole attack, in seconds of CPU time."""
        return claim.limit_s

    def limit_s(self, contract: Contract, claim: Falsifier, conditions: Conditions) -> float:
        """Return the limit after which the worker is killed, in seconds of CPU time and, separately, of idle time."""
        return self.soft_limit_s(claim)

    def clause(self, claim: Falsifier) -> Mapping[str, Any]:
        """Return the values of the keys that only this engine reads. Recorded evidence is stale if a value changes."""
        return {key: claim.options[key] for key in self.keys if key in claim.options}

    def check_replay(self, replay: str, contract: Contract, claim: Falsifier) -> None:
        """Raise `UsageError` if the claim cannot replay an example.

        Args:
            replay: The example in the form that `pv.engines.replay` reads; its syntax has been checked.
            contract: The contract of the claim.
            claim: The claim.
        """
        return

    def scope(self, claim: Falsifier) -> str:
        """Return the domain of the claim as text for people; "" if only the test defines the domain."""
        return ""

    def effort(self, trial: Trial) -> str:
        """Return the effort of a trial as text for people: examples, seed and seconds."""
        if trial.status in ENDED_EARLY:
            # The worker ended before it returned its counts.
            return f"for {trial.seconds:.2f} s, seed {trial.seed}"
        fewer = trial.status is TrialStatus.HELD and trial.valid < trial.asked
        examples = count(trial.valid, "valid example")
        asked = f" of {trial.asked} requested" if fewer else ""
        rejected = f" ({trial.invalid} rejected)" if trial.invalid else ""
        return f"{examples}{asked}{rejected}{self.sensitivity(trial)}, seed {trial.seed}, {trial.seconds:.2f} s"

    def sensitivity(self, trial: Trial) -> str:
        """Return the evidence, besides killed code mutants, that the attack can fail, as text for people."""
        return ""
