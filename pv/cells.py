"""What follows for one falsifier or harness on one device: its outcome, from its own trial and those of its mutants."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pv.evidence import PROOFS, Ending, Evidence, Recorded, Trial
from pv.model import Contract, Falsifier, Harness


class Outcome(Enum):
    """What is known of one falsifier on one device."""

    FALSIFIED = "falsified"
    ERROR = "error"
    VACUOUS = "vacuous"
    UNDECIDED = "undecided"
    NOT_CLAIMED = "not claimed"
    """Another subject stands in, and does not make the claim."""
    PROVED = "proved"
    SURVIVED = "survived"


KILLED = {Ending.REFUTED, Ending.RAISED}


def killed(trial: Trial) -> bool:
    """Whether a mutant fell: also when a limit or a crash came after the counterexample."""
    ended_early = trial.ending in (Ending.TIME, Ending.MEMORY, Ending.CRASHED, Ending.SILENT)
    return trial.ending in KILLED or (ended_early and trial.counterexample is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was asked for. `devices` None stands for the default: the CPU now, other devices from the record."""

    falsifiers: frozenset[str] | None = None
    devices: tuple[str, ...] | None = None
    require: frozenset[str] = frozenset()
    mutants: bool = True
    replay: bool = False
    """One example is run again instead of a search: it can refute, and shows nothing where it holds."""
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    """Why a falsifier isn't tried: what stands in the subject's place doesn't claim what it attacks."""

    def takes(self, falsifier: Falsifier) -> bool:
        return self.falsifiers is None or falsifier.id in self.falsifiers

    def tries(self, falsifier: Falsifier) -> bool:
        return self.takes(falsifier) and falsifier.id not in self.not_claimed

    @property
    def live(self) -> tuple[str, ...]:
        return ("cpu",) if self.devices is None else self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One falsifier on one device: its outcome, why, and the evidence for it."""

    falsifier: Falsifier
    device: str
    outcome: Outcome
    reason: str = ""
    required: bool = True
    trial: Trial | None = None
    recorded: Recorded | None = None
    mutants: tuple[Trial, ...] = ()

    @property
    def strained(self) -> bool:
        """Whether a proof took more than half of its limit."""
        limit_s = self.falsifier.whole_limit_s if isinstance(self.falsifier, Harness) else math.inf
        return self.trial is not None and self.trial.seconds > limit_s / 2


def cells(contract: Contract, evidence: Evidence, selection: Selection) -> Iterator[Cell]:
    """Every cell that was asked for, in the order of the contract."""
    for falsifier in contract.claims:
        if not selection.takes(falsifier):
            continue
        for device in falsifier.devices:
            live = device in selection.live
            if not (live or selection.devices is None or device in selection.require):
                continue
            if selection.tries(falsifier):
                cell = _live(contract, falsifier, device, evidence, selection) if live else None
                yield cell or _recorded(contract, falsifier, device, evidence, selection)
            else:
                yield _not_claimed(falsifier, device, selection)


def _not_claimed(falsifier: Falsifier, device: str, selection: Selection) -> Cell:
    reason = selection.not_claimed[falsifier.id]
    return Cell(falsifier=falsifier, device=device, outcome=Outcome.NOT_CLAIMED, reason=reason, required=False)


def _in_gate(contract: Contract, falsifier: Falsifier) -> bool:
    required = contract.gate.harnesses if isinstance(falsifier, Harness) else contract.gate.falsifiers
    return required is None or falsifier.id in required


def _live(contract: Contract, falsifier: Falsifier, device: str, evidence: Evidence, selection: Selection) -> Cell:
    required = _in_gate(contract, falsifier)
    if not falsifier.bound:
        return Cell(
            falsifier=falsifier, device=device, outcome=Outcome.UNDECIDED, reason="not bound: its test is prose"
        )
    trial = evidence.trials.get((falsifier.id, device))
    if trial is None:
        reason = evidence.absent.get(device, "nothing was measured")
        return Cell(falsifier=falsifier, device=device, outcome=Outcome.UNDECIDED, reason=reason, required=required)
    named = falsifier.kills or [mutant for (id_, mutant) in evidence.mutants if id_ == falsifier.id and mutant]
    judged = [evidence.mutants.get((falsifier.id, mutant)) for mutant in named if device == "cpu"]
    mutants = tuple(trial for trial in judged if trial is not None)
    outcome, reason = _outcome(trial)
    if selection.replay and outcome is Outcome.SURVIVED:
        outcome, reason = Outcome.UNDECIDED, "it holds at the one example that was replayed"
    recorded = None
    if isinstance(falsifier, Harness):
        outcome, reason, recorded = _proof(falsifier, trial, evidence, outcome, reason)
    if outcome in (Outcome.SURVIVED, Outcome.PROVED) and device == "cpu" and selection.mutants:
        toothless, why = _teeth(contract, falsifier, mutants, evidence)
        outcome, reason = (outcome, reason) if toothless is Outcome.SURVIVED else (toothless, why)
    return Cell(
        falsifier=falsifier,
        device=device,
        outcome=outcome,
        reason=reason,
        required=required,
        trial=trial,
        recorded=recorded,
        mutants=mutants,
    )


def _proof(
    harness: Harness, trial: Trial, evidence: Evidence, outcome: Outcome, reason: str
) -> tuple[Outcome, str, Recorded | None]:
    """What a harness's trial says: a complete search proves. One that hit its limit may stand by a recorded proof."""
    if outcome is Outcome.SURVIVED:
        return Outcome.PROVED, trial.detail, None
    if trial.ending is Ending.BARREN:
        return Outcome.VACUOUS, trial.detail, None
    if trial.ending is not Ending.TIME or trial.counterexample is not None:
        return outcome, reason, None
    record = evidence.recorded.get((harness.id, PROOFS))
    if record is None:
        return Outcome.UNDECIDED, trial.detail, None
    if record.changed:
        return (
            Outcome.UNDECIDED,
            f"{trial.detail}; the recorded proof is stale, changed: {', '.join(record.changed)}",
            record,
        )
    return (
        Outcome.PROVED,
        f"recorded on {record.hardware.name}, {record.when}: {record.detail}; now {trial.detail}",
        record,
    )


def _outcome(trial: Trial) -> tuple[Outcome, str]:
    """What one trial says, before its mutants are asked."""
    match trial.ending:
        case Ending.REFUTED:
            return Outcome.FALSIFIED, ""
        case Ending.RAISED:
            return Outcome.FALSIFIED, "the subject raised on a valid input"
        case Ending.HELD if not trial.reached:
            return Outcome.VACUOUS, "the subject was never reached: no function of it ran"
        case Ending.HELD if trial.changes is not None and trial.changes.total and not trial.changes.told_apart:
            return Outcome.VACUOUS, f"it tells none of {trial.changes.total} changes of its equation from it"
        case Ending.HELD:
            return Outcome.SURVIVED, ""
        case Ending.BARREN:
            return Outcome.VACUOUS, f"no example was valid: {trial.detail}"
        case Ending.SKIPPED | Ending.CANCELLED | Ending.UNSETTLED:
            return Outcome.UNDECIDED, trial.detail
        case Ending.TIME | Ending.MEMORY | Ending.CRASHED | Ending.SILENT if trial.counterexample is not None:
            return Outcome.FALSIFIED, f"not shrunk: {trial.detail}"
        case _:
            return Outcome.ERROR, trial.detail


def _teeth(
    contract: Contract, falsifier: Falsifier, mutants: tuple[Trial, ...], evidence: Evidence
) -> tuple[Outcome, str]:
    """Whether a falsifier that found nothing could have found something: every mutant it claims must fall to it."""
    small = evidence.mutants.get((falsifier.id, ""))
    if small is not None:
        return Outcome.ERROR, f"the clean subject fails at the run's `small` arguments: {small.detail or 'refuted'}"
    if not falsifier.kills:
        return _automatic_teeth(contract, falsifier, mutants, evidence)
    for trial in mutants:
        if contract.gate.mutants is not None and trial.mutant not in contract.gate.mutants:
            continue
        if trial.ending is Ending.HELD:
            reach = "reached" if trial.mutant_reached else "never reached"
            return Outcome.VACUOUS, f"the mutant {trial.mutant!r} survived it (its code was {reach})"
        if trial.ending is Ending.CANCELLED:
            return Outcome.UNDECIDED, f"the mutant {trial.mutant!r} was not judged: {trial.detail}"
        if not killed(trial):
            return Outcome.ERROR, f"the mutant {trial.mutant!r} could not be judged: {trial.detail}"
    required = set(falsifier.kills) if contract.gate.mutants is None else contract.gate.mutants & set(falsifier.kills)
    missing = required - {trial.mutant for trial in mutants}
    if missing:
        return Outcome.UNDECIDED, f"the mutant {min(missing)!r} was not judged"
    return Outcome.SURVIVED, ""


def _automatic_teeth(
    contract: Contract, falsifier: Falsifier, mutants: tuple[Trial, ...], evidence: Evidence
) -> tuple[Outcome, str]:
    """Whether a falsifier that declares no mutant noticed one that was made by rule in what it reaches."""
    if contract.gate.mutants is not None or any(map(killed, mutants)) or told_apart(evidence, falsifier):
        return Outcome.SURVIVED, ""
    drawn = evidence.automatic.get(falsifier.id)
    cancelled = next((trial for trial in mutants if trial.ending is Ending.CANCELLED), None)
    if drawn is None or len(mutants) < drawn or cancelled is not None:
        return Outcome.UNDECIDED, cancelled.detail if cancelled is not None else "no automatic mutant was judged"
    if not drawn:
        return Outcome.VACUOUS, "it kills no mutant: there is nothing to mutate in what it reaches; declare one"
    held = sum(trial.ending is Ending.HELD for trial in mutants)
    if not held:
        return Outcome.ERROR, f"none of {drawn} automatic mutants could be judged: {mutants[0].detail}"
    return Outcome.VACUOUS, f"it kills no mutant: none of {drawn} automatic ones in what it reaches fell to it"


def told_apart(evidence: Evidence, falsifier: Falsifier) -> bool:
    """Whether an equation falsifier told changes of its equation from it, which are mutants too."""
    trial = evidence.trials.get((falsifier.id, "cpu"))
    return trial is not None and trial.changes is not None and trial.changes.told_apart > 0


def _recorded(contract: Contract, falsifier: Falsifier, device: str, evidence: Evidence, selection: Selection) -> Cell:
    """A cell of another device: what was committed for it, while everything it depends on is as it was."""
    required = device in (selection.require | contract.gate.devices) and _in_gate(contract, falsifier)
    record = evidence.recorded.get((falsifier.id, device))
    if record is None:
        outcome, reason = Outcome.UNDECIDED, f"not measured on {device}"
    elif record.changed:
        outcome, reason = Outcome.UNDECIDED, f"stale, changed: {', '.join(record.changed)}"
    else:
        trial = Trial(
            falsifier=falsifier.id,
            device=device,
            ending=record.ending,
            detail=record.detail,
            valid=record.valid,
            reached=frozenset({device} if record.reached else ()),
        )
        outcome, reason = _outcome(trial)
        reason = "; ".join(filter(None, [reason, f"recorded on {record.hardware.name}, {record.when}"]))
    return Cell(falsifier=falsifier, device=device, outcome=outcome, reason=reason, required=required, recorded=record)
