"""Decide the outcome of a claim on a device from trials of the code, trials of mutants and recorded evidence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from pv.contract.model import Contract, Falsifier
from pv.contract.wording import count
from pv.engines.engine import ENDED_EARLY
from pv.engines.registry import engine_of
from pv.engines.trial import Counterexample, Trial, TrialStatus
from pv.results.evidence import INTERRUPTED, PROOFS, Evidence, Recorded


class Outcome(Enum):
    """The outcome of one claim on one device."""

    FALSIFIED = "falsified"
    ERROR = "error"
    VACUOUS = "vacuous"
    UNDECIDED = "undecided"
    NOT_CLAIMED = "not claimed"
    """The subject does not make the claim; its contract or its adapter gives the reason."""
    PROVED = "proved"
    HELD = "held"


GOOD = (Outcome.HELD, Outcome.PROVED)
KILLED = {TrialStatus.REFUTED, TrialStatus.RAISED}


def killed(trial: Trial) -> bool:
    """Return whether a mutant was killed. A counterexample counts even if the worker ended early afterwards."""
    return trial.status in KILLED or (trial.status in ENDED_EARLY and trial.counterexample is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The requested claims of one contract, and the devices on which they are tried."""

    falsifiers: frozenset[str] | None = None
    """Ids of the claims; None selects all claims."""
    devices: tuple[str, ...] | None = None
    """Devices to run on; None runs on the CPU and reads recorded evidence for the other devices."""
    require: frozenset[str] = frozenset()
    """Devices whose recorded evidence must also hold."""
    mutants: bool = True
    """Whether claims that hold are also tried on mutants."""
    examples: int | None = None
    """Number of examples for every claim that draws examples; None uses the number in the contract."""
    replay: bool = False
    """Whether one example is replayed instead of a search; mutants and the gate are then ignored."""
    divided: bool = False
    """Whether the claims of the contract are divided among shards, and this validation runs one shard."""
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    """Claims that are not tried because the requested subject does not make them: the reason, by id of the claim."""

    def selects(self, falsifier: Falsifier) -> bool:
        """Return whether the request names the claim."""
        return self.falsifiers is None or falsifier.id in self.falsifiers

    def runs(self, falsifier: Falsifier) -> bool:
        """Return whether the claim is tried: it is selected, and its subject makes it."""
        return self.selects(falsifier) and falsifier.id not in self.not_claimed

    @property
    def active_devices(self) -> tuple[str, ...]:
        """Return the devices on which claims run now."""
        return ("cpu",) if self.devices is None else self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of one claim on one device, with its reason and its evidence.

    Attributes:
        falsifier: The claim.
        device: The device.
        outcome: The outcome.
        reason: The reason of the outcome as text; "" if the evidence shows it.
        required: Whether the outcome decides the verdict of the contract.
        trial: The trial of this validation; None if the claim was not tried.
        recorded: The recorded evidence, if it was used or is stale.
        mutants: The trials of the claim on mutants.
        unjudged: Whether the claim held without proof that it can fail, because the request left out its mutants.
        fewer: Whether the claim held on fewer examples than its contract requires, as requested.
    """

    falsifier: Falsifier
    device: str
    outcome: Outcome
    reason: str = ""
    required: bool = True
    trial: Trial | None = None
    recorded: Recorded | None = None
    mutants: tuple[Trial, ...] = ()
    unjudged: bool = False
    fewer: bool = False

    @property
    def counterexample(self) -> Counterexample | None:
        """Return the input that refuted the claim; None if there is none."""
        return self.trial.counterexample if self.trial is not None else None

    @property
    def example(self) -> Counterexample | None:
        """Return the counterexample, or else the arguments of the call in which the worker ended, if there are any."""
        return self.counterexample or (self.trial.current_arguments if self.trial is not None else None)

    @property
    def waived(self) -> tuple[str, ...]:
        """Return the declared mutants that survived although the claim holds: mutants that the gate waives."""
        if self.outcome not in GOOD:
            return ()
        survivors = (trial.mutant for trial in self.mutants if trial.status is TrialStatus.HELD)
        return tuple(mutant for mutant in survivors if mutant is not None and mutant in self.falsifier.kills)

    @property
    def near_limit(self) -> bool:
        """Return whether a proof took more than half of its time limit, so that a slower machine may miss it."""
        engine = engine_of(self.falsifier)
        return engine.proves and self.trial is not None and self.trial.cpu_s > engine.soft_limit_s(self.falsifier) / 2


def in_gate(contract: Contract, falsifier: Falsifier) -> bool:
    """Return whether the gate requires a claim."""
    required = contract.gate.harnesses if engine_of(falsifier).proves else contract.gate.falsifiers
    return required is None or falsifier.id in required


HOLDS_NOW = "the replayed example holds now; no other example was tried"


def claim_results(contract: Contract, evidence: Evidence, selection: Selection) -> Iterator[Result]:
    """Yield every requested result, in the order of the contract."""
    for falsifier in contract.claims:
        if not selection.selects(falsifier):
            continue
        for device in falsifier.devices:
            live = device in selection.active_devices
            if not (live or selection.devices is None or device in selection.require):
                continue
            if not selection.runs(falsifier):
                reason = selection.not_claimed[falsifier.id]
                yield Result(
                    falsifier=falsifier, device=device, outcome=Outcome.NOT_CLAIMED, reason=reason, required=False
                )
            elif live:
                yield _measured_result(contract, falsifier, device, evidence, selection)
            else:
                yield _recorded_result(contract, falsifier, device, evidence, selection)


def _measured_result(
    contract: Contract, falsifier: Falsifier, device: str, evidence: Evidence, selection: Selection
) -> Result:
    """Return the result of a claim on a device that this validation runs on, from the trials."""
    required = in_gate(contract, falsifier) or selection.replay
    if not engine_of(falsifier).bound:
        return Result(
            falsifier=falsifier, device=device, outcome=Outcome.UNDECIDED, reason="not bound: its test is prose"
        )
    trial = evidence.trials.get((falsifier.id, device))
    if trial is None:
        reason = evidence.unavailable.get(device) or _missing_reason(evidence, "nothing was measured")
        return Result(falsifier=falsifier, device=device, outcome=Outcome.UNDECIDED, reason=reason, required=required)
    # Mutants are tried on the CPU only: the declared mutants, or else the generated ones.
    mutants: tuple[Trial, ...] = ()
    if device == "cpu":
        mutant_ids = falsifier.kills or [mutant for (id_, mutant) in evidence.mutants if id_ == falsifier.id and mutant]
        keys = [(falsifier.id, mutant) for mutant in mutant_ids]
        mutants = tuple(evidence.mutants[key] for key in keys if key in evidence.mutants)
    outcome, reason = _outcome_of_trial(trial)
    # A replay tries one example only: if the claim holds on it, neither proofs nor mutants are considered.
    replayed = selection.replay and outcome is Outcome.HELD
    recorded = None
    if replayed:
        reason = HOLDS_NOW
    elif engine_of(falsifier).proves:
        outcome, reason, recorded = _outcome_of_proof(falsifier, trial, evidence, outcome, reason)
    # A claim that holds must also be able to fail: if its mutants do not show that, their outcome replaces HELD.
    unjudged = False
    if outcome in GOOD and device == "cpu" and not replayed and engine_of(falsifier).judged(falsifier):
        mutant_outcome, mutant_reason = _outcome_of_mutants(contract, falsifier, mutants, evidence)
        if mutant_outcome is not Outcome.HELD:
            if selection.mutants:
                outcome, reason = mutant_outcome, mutant_reason
            else:
                unjudged = True
    requested = selection.examples or falsifier.examples
    return Result(
        falsifier=falsifier,
        device=device,
        outcome=outcome,
        reason=reason,
        required=required and outcome is not Outcome.NOT_CLAIMED,
        trial=trial,
        recorded=recorded,
        mutants=mutants,
        unjudged=unjudged,
        fewer=outcome in GOOD and falsifier.run is None and trial.asked == requested < falsifier.examples,
    )


def _outcome_of_proof(
    falsifier: Falsifier, trial: Trial, evidence: Evidence, outcome: Outcome, reason: str
) -> tuple[Outcome, str, Recorded | None]:
    """Return the outcome and the reason of a proof, and the recorded proof if it was used or is stale.

    A complete search proves the claim. If the search timed out, a recorded proof that is not stale replaces it.
    """
    if outcome is Outcome.HELD:
        return Outcome.PROVED, trial.detail, None
    if trial.status is TrialStatus.NO_EXAMPLES:
        return Outcome.VACUOUS, trial.detail, None
    # After a timeout, a faster machine may have proved the claim, unless there is a counterexample.
    if trial.status is not TrialStatus.TIMEOUT or trial.counterexample is not None:
        return outcome, reason, None
    record = evidence.recorded.get((falsifier.id, PROOFS))
    if record is None:
        return Outcome.UNDECIDED, trial.detail, None
    if record.changed:
        stale = f"{trial.detail}; the recorded proof is stale, changed: {', '.join(record.changed)}"
        return Outcome.UNDECIDED, stale, record
    recorded = f"recorded on {record.hardware.name}, {record.when}: {record.detail}; now {trial.detail}"
    return Outcome.PROVED, recorded, record


def _outcome_of_trial(trial: Trial) -> tuple[Outcome, str]:
    """Return the outcome of one trial, before its mutants are considered."""
    match trial.status:
        case TrialStatus.REFUTED:
            return Outcome.FALSIFIED, ""
        case TrialStatus.RAISED:
            return Outcome.FALSIFIED, "the subject raised on a valid input"
        case TrialStatus.HELD if not trial.reached:
            return Outcome.VACUOUS, "the subject was never reached: no function of it ran"
        case TrialStatus.HELD:
            mutants = trial.equation_mutants
            if mutants is not None and mutants.total > 0 and mutants.killed == 0:
                return Outcome.VACUOUS, f"it kills none of {mutants.total} mutants of its equation"
            return Outcome.HELD, trial.detail
        case TrialStatus.NO_EXAMPLES:
            return Outcome.VACUOUS, f"no example was valid: {trial.detail}"
        case TrialStatus.NO_PREMISE:
            return Outcome.VACUOUS, trial.detail
        case TrialStatus.NOT_CLAIMED:
            return Outcome.NOT_CLAIMED, trial.detail
        case TrialStatus.SKIPPED | TrialStatus.CANCELLED | TrialStatus.INCONCLUSIVE:
            return Outcome.UNDECIDED, trial.detail
        # A counterexample is valid even if the worker timed out or crashed while shrinking it.
        case status if status in ENDED_EARLY and trial.counterexample is not None:
            return Outcome.FALSIFIED, f"not shrunk: {trial.detail}"
        case _:
            return Outcome.ERROR, trial.detail


def _outcome_of_mutants(
    contract: Contract, falsifier: Falsifier, mutants: tuple[Trial, ...], evidence: Evidence
) -> tuple[Outcome, str]:
    """Return HELD if a falsifier killed the required mutants; otherwise another outcome, with its reason."""
    # A claim that reads a run is tried on mutants with the run's `small` arguments, so it must hold on the clean code
    # with these arguments. The evidence has the trial only if it did not hold.
    small = evidence.mutants.get((falsifier.id, ""))
    if small is not None:
        if small.status is TrialStatus.CANCELLED:
            return Outcome.UNDECIDED, small.detail
        return Outcome.ERROR, f"the clean subject fails at the run's `small` arguments: {small.detail or 'refuted'}"
    if not falsifier.kills:
        return _outcome_of_generated_mutants(falsifier, mutants, evidence)
    # The gate may waive mutants: the report lists a waived mutant that survives, but the claim is not vacuous.
    required = set(falsifier.kills) if contract.gate.mutants is None else contract.gate.mutants & set(falsifier.kills)
    for trial in mutants:
        if trial.mutant not in required or trial.status is TrialStatus.CANCELLED:
            continue
        if trial.status is TrialStatus.HELD:
            reach = "reached" if trial.mutant_reached else "never reached"
            return Outcome.VACUOUS, f"the mutant {trial.mutant!r} survived (the mutated code was {reach})"
        if not killed(trial):
            return Outcome.ERROR, f"the mutant {trial.mutant!r} could not be judged: {trial.detail}"
    # Check cancelled trials last, since a survivor is the more useful reason.
    for trial in mutants:
        if trial.mutant in required and trial.status is TrialStatus.CANCELLED:
            return Outcome.UNDECIDED, trial.detail
    missing = required - {trial.mutant for trial in mutants}
    if missing:
        return Outcome.UNDECIDED, _missing_reason(evidence, f"the mutant {min(missing)!r} was not judged")
    return Outcome.HELD, ""


def _outcome_of_generated_mutants(
    falsifier: Falsifier, mutants: tuple[Trial, ...], evidence: Evidence
) -> tuple[Outcome, str]:
    """Return HELD if a falsifier without declared mutants killed a generated mutant or a mutant of its equation.

    Otherwise return another outcome, with its reason.
    """
    if any(map(killed, mutants)) or kills_equation_mutants(evidence, falsifier):
        return Outcome.HELD, ""
    drawn = evidence.drawn_mutants.get(falsifier.id)
    cancelled = next((trial for trial in mutants if trial.status is TrialStatus.CANCELLED), None)
    if cancelled is not None:
        return Outcome.UNDECIDED, cancelled.detail
    if drawn is None or len(mutants) < drawn:
        return Outcome.UNDECIDED, _missing_reason(evidence, "no generated mutant was judged")
    if not drawn:
        return Outcome.VACUOUS, "it kills no mutant: the code it reaches has nothing to mutate; declare a mutant"
    # No mutant was killed. If none survived either, every trial ended in an error.
    if not any(trial.status is TrialStatus.HELD for trial in mutants):
        return Outcome.ERROR, f"none of {drawn} generated mutants could be judged: {mutants[0].detail}"
    return Outcome.VACUOUS, f"it kills no mutant: {count(drawn, 'generated mutant')} of the code it reaches survived"


def _missing_reason(evidence: Evidence, reason: str) -> str:
    """Return the reason for a missing trial; an interrupt takes precedence."""
    return INTERRUPTED if evidence.interrupted else reason


def kills_equation_mutants(evidence: Evidence, falsifier: Falsifier) -> bool:
    """Return whether a falsifier of an equation killed a mutant of the equation."""
    trial = evidence.trials.get((falsifier.id, "cpu"))
    return trial is not None and trial.equation_mutants is not None and trial.equation_mutants.killed > 0


def _recorded_result(
    contract: Contract, falsifier: Falsifier, device: str, evidence: Evidence, selection: Selection
) -> Result:
    """Return the result for a device that was not run, from recorded evidence that is not stale."""
    required = device in (selection.require | contract.gate.fresh) and in_gate(contract, falsifier)
    record = evidence.recorded.get((falsifier.id, device))
    if record is None:
        outcome, reason = Outcome.UNDECIDED, f"not measured on {device}"
    elif record.changed:
        outcome, reason = Outcome.UNDECIDED, f"stale, changed: {', '.join(record.changed)}"
    else:
        # The rules for a trial apply to a record too. A record has no names of reached functions, so use a placeholder.
        trial = Trial(
            falsifier=falsifier.id,
            device=device,
            status=record.status,
            detail=record.detail,
            valid=record.valid,
            reached=frozenset({device} if record.reached else ()),
        )
        outcome, reason = _outcome_of_trial(trial)
        reason = "; ".join(filter(None, [reason, f"recorded on {record.hardware.name}, {record.when}"]))
    return Result(
        falsifier=falsifier, device=device, outcome=outcome, reason=reason, required=required, recorded=record
    )


def name_limit(claim: Falsifier, trial: Trial) -> Trial:
    """Return the trial of a proof; if its worker was killed, the detail names the time limit in the contract."""
    # A solver that stops at the limit names the limit itself. A worker is killed later, at a hard limit that is not in
    # the contract.
    if trial.status is not TrialStatus.TIMEOUT or not trial.stopped:
        return trial
    limit = f"no answer within the limit of {engine_of(claim).soft_limit_s(claim):g} s, nor soon after"
    return replace(trial, detail=f"{limit}: narrow the bounds, or raise `limit`")


def must_replay(trial: Trial) -> bool:
    """Return whether a trial has a counterexample that must be confirmed in a fresh worker."""
    return trial.counterexample is not None and trial.status in (*KILLED, *ENDED_EARLY)


def corrected_by_replay(first: Trial, replay: Trial) -> Trial:
    """Return the first trial, corrected by the replay of its counterexample in a fresh worker.

    Args:
        first: The search that found the counterexample.
        replay: The replay.
    """
    # A counterexample that does not reproduce is an error, not HELD: the search depended on state or randomness.
    if replay.status is TrialStatus.HELD:
        detail = "its counterexample does not reproduce: the claim holds on it in a fresh process"
        return replace(first, status=TrialStatus.ERROR, detail=detail)
    if replay.counterexample is None or first.counterexample is None:
        return replace(first, status=replay.status, detail=f"its counterexample could not be replayed: {replay.detail}")
    counterexample = replace(replay.counterexample, shrunk=first.counterexample.shrunk)
    return replace(first, status=replay.status, detail=replay.detail, counterexample=counterexample)


def needs_mutants(claim: Falsifier, trial: Trial) -> bool:
    """Return whether a claim is tried on mutants: it held, or its proof timed out and a record may replace it."""
    return trial.status is TrialStatus.HELD or (engine_of(claim).proves and trial.status is TrialStatus.TIMEOUT)
