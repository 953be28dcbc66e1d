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
"""The type of the payload of an engine."""
ENDED_EARLY = (TrialStatus.TIMEOUT, TrialStatus.OUT_OF_MEMORY, TrialStatus.CRASHED, TrialStatus.NO_RESULT)


class Depends(Enum):
    """The part of the loaded code on which the result of a worker depends."""

    FUNCTIONS = "functions"
    """The code of modules that runs at import, and the functions that ran."""
    MODULES = "modules"
    """The whole source of the modules, which the attack reads."""
    SHARED = "shared"
    """As `FUNCTIONS`, and also the functions that ran in other workers, whose cached runs the worker may have used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The settings with which one worker tries one claim.

    Attributes:
        device: The device.
        examples: The number of examples; None for the number that the claim states.
        seed: The seed of the user; an engine combines it with the id of the claim.
        mutant: The mutant to plant; None for the clean code.
        replay: The example to replay, VERSION:BLOB or exact arguments as a JSON object; "" for none.
        directory: The folder of a run's record.
        execute: The arguments with which the worker first executes the run; None if its record exists.
        statements: Whether to record every statement that is reached.
        guarded: Whether to refuse writes to files of the project.
    """

    device: str = "cpu"
    examples: int | None = None
    seed: int = 0
    mutant: Mutant | None = None
    replay: str = ""
    directory: str = ""
    execute: Mapping[str, Any] | None = None
    statements: bool = False
    guarded: bool = False


class Worker(Protocol):
    """The services of a worker that an attack uses."""

    device: str
    mutated: bool
    """True if a mutant is applied: the first refutation is then enough."""
    failures: FailureClassifier
    stream: Stream

    @property
    def subject_module(self) -> str:
        """Return the name of the module of the subject."""

    @property
    def shared(self) -> Path | None:
        """Return a folder that all workers on the same subject share; None on a mutant."""

    def subject(self) -> Any:
        """Return the subject. Its module is imported from the file to which lint has resolved the name."""

    def function(self, described: Function) -> Any:
        """Return a function. Its module is imported from the file to which lint has resolved the name."""

    def ready(self) -> None:
        """Mark the end of the imports: code that runs after this call counts as executed by the attack."""


class Engine(ABC, Generic[P]):
    """One engine: the claims that it takes, its payload, its attack, its lint rules and its descriptions."""

    name: ClassVar[str]
    section: ClassVar[str]
    """The key of the contract that lists its claims."""
    keys: ClassVar[tuple[str, ...]] = ()
    """The keys of a claim that only this engine reads, from `claim.options`."""
    schema: ClassVar[Mapping[str, Any]] = {}
    """The JSON Schema of each key in `keys`, for engines of other packages; other keys are in `contract.json`."""
    payload_type: ClassVar[type]
    """The frozen dataclass that travels to the worker as JSON."""
    bound: ClassVar[bool] = True
    """Whether its claims are bound to code and can be tried; False for claims in prose."""
    proves: ClassVar[bool] = False
    """Whether its claims are proofs. A complete search then means `proved`, not `held`, and a recorded proof counts if
    the search reaches its limit."""
    confirms: ClassVar[bool] = False
    """Whether a counterexample counts only after it is confirmed in a fresh worker."""
    timeout_kills: ClassVar[bool] = True
    """Whether a timeout on a mutant kills it."""
    replays_arguments: ClassVar[bool] = False
    """Whether a counterexample is replayed by its arguments; otherwise by Hypothesis's blob."""
    replays: ClassVar[bool] = True
    """Whether it tries examples that `--replay` can repeat."""
    asserts: ClassVar[bool] = False
    """Whether only the assertions of its test count, not its return value; `@given` supplies other parameters."""
    depends_on: ClassVar[Depends] = Depends.FUNCTIONS
    """How much of the loaded code a cached result depends on."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """The lint rules about the keys that only this engine reads."""

    @abstractmethod
    def takes(self, claim: Falsifier) -> bool:
        """Return whether this engine tries the claim. The first such engine in the order of the registry is used."""

    @abstractmethod
    def payload(self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> P:
        """Build the payload for the worker.

        Args:
            code: The subject and its files.
            contract: The contract of the claim.
            claim: The claim.
            conditions: The device, the examples and the mutant.

        Raises:
            Unbound: A name in the claim cannot be resolved.
        """

    @abstractmethod
    def attack(self, payload: P, worker: Worker) -> Record:
        """Try the claim inside a worker; return the fields of the record with which it ends."""

    def binding(self, claim: Falsifier) -> str:
        """Return the test or equation that tries the claim, as text for people."""
        return str(claim.test)

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        """Return the names that the claim's function must accept."""
        # Without a parameter `device`, a test would run on the CPU whatever the device of the claim.
        device = () if claim.devices == ("cpu",) else ("device",)
        return ("subject", *device)

    def judged(self, claim: Falsifier) -> bool:
        """Return whether mutants of the subject must show that the claim can fail; a suite shows this itself."""
        return True

    def preloads(self, contract: Contract, claim: Falsifier) -> tuple[str, ...]:
        """Return the modules that the fork server loads for a claim."""
        return ()

    def run_of(self, contract: Contract, claim: Falsifier) -> Run | None:
        """Return the run that is executed before the claim is tried. Raise `UnknownName` if it is not declared."""
        return None

    def soft_limit_s(self, claim: Falsifier) -> float:
        """Return the limit that the contract sets for the whole attack, in seconds of CPU time."""
        return claim.limit_s

    def limit_s(self, contract: Contract, claim: Falsifier, conditions: Conditions) -> float:
        """Return the limit after which the worker of the claim is killed, in seconds of CPU time or of waiting."""
        return self.soft_limit_s(claim)

    def clause(self, claim: Falsifier) -> Mapping[str, Any]:
        """Return the values of the keys that only this engine reads. Recorded evidence is stale if they change."""
        return {key: claim.options[key] for key in self.keys if key in claim.options}

    def check_replay(self, replay: str, contract: Contract, claim: Falsifier) -> None:
        """Raise `UsageError` if an example does not fit the claim.

        Args:
            replay: The example, whose form has been checked by `pv.engines.replay`.
            contract: The contract of the claim.
            claim: The claim.
        """
        return

    def scope(self, claim: Falsifier) -> str:
        """Return the domain of the claim as text for people; "" if only its test defines it."""
        return ""

    def effort(self, trial: Trial) -> str:
        """Return the effort of a trial as text for people: examples, seed and seconds."""
        if trial.status in ENDED_EARLY:
            # The worker ended before it returned its counts.
            return f"for {trial.seconds:.2f} s, seed {trial.seed}"
        short = trial.status is TrialStatus.HELD and trial.valid < trial.asked
        examples = count(trial.valid, "valid example")
        asked = f" of {trial.asked} requested" if short else ""
        rejected = f" ({trial.invalid} rejected)" if trial.invalid else ""
        return f"{examples}{asked}{rejected}{self.sensitivity(trial)}, seed {trial.seed}, {trial.seconds:.2f} s"

    def sensitivity(self, trial: Trial) -> str:
        """Return the evidence that the attack can fail, besides killed mutants of the code, as text for people."""
        return ""
