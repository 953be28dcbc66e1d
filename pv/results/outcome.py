"""The outcome of one claim on one device, with the evidence for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.results.trial import Recorded, Trial, TrialStatus


class Outcome(Enum):
    """The outcome of one claim on one device."""

    FALSIFIED = "falsified"
    ERROR = "error"
    VACUOUS = "vacuous"
    UNDECIDED = "undecided"
    NOT_CLAIMED = "not claimed"
    """The subject does not make the claim: its contract or its adapter says why."""
    PROVED = "proved"
    HELD = "held"


GOOD = (Outcome.HELD, Outcome.PROVED)
KILLED = {TrialStatus.REFUTED, TrialStatus.RAISED}
CUT_OFF = {TrialStatus.TIMEOUT, TrialStatus.OUT_OF_MEMORY, TrialStatus.CRASHED, TrialStatus.NO_RESULT}


def killed(trial: Trial) -> bool:
    """Return whether a mutant was killed, also when a limit or a crash came after the counterexample."""
    return trial.status in KILLED or (trial.status in CUT_OFF and trial.counterexample is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The requested claims and devices. `devices` None: the CPU now, other devices from the record."""

    falsifiers: frozenset[str] | None = None
    devices: tuple[str, ...] | None = None
    require: frozenset[str] = frozenset()
    mutants: bool = True
    examples: int | None = None
    """The number of examples of every claim that draws some; None for its own."""
    replay: bool = False
    """One example is run instead of a search, and nothing else is asked of the claim."""
    divided: bool = False
    """The contract's other claims are tried in other shards."""
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    """Why a falsifier is not tried, by its id: the other subject does not make its claim."""

    def takes(self, falsifier: Falsifier) -> bool:
        return self.falsifiers is None or falsifier.id in self.falsifiers

    def tries(self, falsifier: Falsifier) -> bool:
        return self.takes(falsifier) and falsifier.id not in self.not_claimed

    @property
    def live(self) -> tuple[str, ...]:
        return ("cpu",) if self.devices is None else self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One falsifier on one device: its outcome, why, and the evidence for it."""

    falsifier: Falsifier
    device: str
    outcome: Outcome
    reason: str = ""
    required: bool = True
    trial: Trial | None = None
    recorded: Recorded | None = None
    mutants: tuple[Trial, ...] = ()
    unjudged: bool = False
    """It held, and the mutants that would show that it can fail were not tried on request."""

    fewer: bool = False
    """It held, on request on fewer examples than its contract asks for."""

    @property
    def waived(self) -> tuple[str, ...]:
        """Return the declared mutants that survived it although it held: the gate does not require them."""
        survived = (trial.mutant or "" for trial in self.mutants if trial.status is TrialStatus.HELD)
        held = self.outcome in (Outcome.HELD, Outcome.PROVED)
        return tuple(mutant for mutant in survived if held and mutant in self.falsifier.kills)

    @property
    def strained(self) -> bool:
        """Return whether a proof took more than half of its limit."""
        engine = engine_of(self.falsifier)
        return engine.proves and self.trial is not None and self.trial.cpu_s > engine.soft_limit_s(self.falsifier) / 2


def in_gate(contract: Contract, falsifier: Falsifier) -> bool:
    """Return whether the gate requires a claim."""
    required = contract.gate.harnesses if engine_of(falsifier).proves else contract.gate.falsifiers
    return required is None or falsifier.id in required
