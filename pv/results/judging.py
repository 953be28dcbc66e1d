"""Decides the outcome of each claim on each device, from its own trial and those of its mutants."""

from collections.abc import Iterator

from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.results.outcome import Outcome, Result, Selection, in_gate, killed
from pv.results.trial import INTERRUPTED, PROOFS, Evidence, Recorded, Trial, TrialStatus

HOLDS_NOW = "the replayed example holds now; no other was tried"


def results(contract: Contract, evidence: Evidence, selection: Selection) -> Iterator[Result]:
    """Yield every requested result, in the order of the contract."""
    for falsifier in contract.claims:
        if not selection.takes(falsifier):
            continue
        for device in falsifier.devices:
            live = device in selection.live
            if not (live or selection.devices is None or device in selection.require):
                continue
            if selection.tries(falsifier):
                result = _live(contract, falsifier, device, evidence, selection) if live else None
                yield result or _recorded(contract, falsifier, device, evidence, selection)
            else:
                yield _not_claimed(falsifier, device, selection)


def _not_claimed(falsifier: Falsifier, device: str, selection: Selection) -> Result:
    reason = selection.not_claimed[falsifier.id]
    return Result(falsifier=falsifier, device=device, outcome=Outcome.NOT_CLAIMED, reason=reason, required=False)


def _live(contract: Contract, falsifier: Falsifier, device: str, evidence: Evidence, selection: Selection) -> Result:
    required = in_gate(contract, falsifier) or selection.replay
    if not engine_of(falsifier).bound:
        return Result(
            falsifier=falsifier, device=device, outcome=Outcome.UNDECIDED, reason="not bound: its test is prose"
        )
    trial = evidence.trials.get((falsifier.id, device))
    if trial is None:
        reason = evidence.absent.get(device) or _missing_reason(evidence, "nothing was measured")
        return Result(falsifier=falsifier, device=device, outcome=Outcome.UNDECIDED, reason=reason, required=required)
    named = falsifier.kills or [mutant for (id_, mutant) in evidence.mutants if id_ == falsifier.id and mutant]
    judged = [evidence.mutants.get((falsifier.id, mutant)) for mutant in named if device == "cpu"]
    mutants = tuple(trial for trial in judged if trial is not None)
    outcome, reason = _outcome(trial)
    replayed = selection.replay and outcome is Outcome.HELD
    recorded = None
    if replayed:
        reason = HOLDS_NOW
    elif engine_of(falsifier).proves:
        outcome, reason, recorded = _proof(falsifier, trial, evidence, outcome, reason)
    unjudged = False
    judged_here = device == "cpu" and not replayed and engine_of(falsifier).judged(falsifier)
    if judged_here and outcome in (Outcome.HELD, Outcome.PROVED):
        sensitive, why = _sensitivity(contract, falsifier, mutants, evidence)
        unjudged = sensitive is not Outcome.HELD and not selection.mutants
        outcome, reason = (outcome, reason) if sensitive is Outcome.HELD or unjudged else (sensitive, why)
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
        fewer=outcome in (Outcome.HELD, Outcome.PROVED) and _fewer(falsifier, trial, selection),
    )


def _fewer(falsifier: Falsifier, trial: Trial, selection: Selection) -> bool:
    """Return whether a claim was tried on the requested number of examples, which is smaller than its own."""
    requested = selection.examples or falsifier.examples
    return falsifier.run is None and trial.asked == requested < falsifier.examples


def _proof(
    harness: Falsifier, trial: Trial, evidence: Evidence, outcome: Outcome, reason: str
) -> tuple[Outcome, str, Recorded | None]:
    """Return the outcome of a proof: a complete search proves; a recorded proof replaces one that hit its limit."""
    if outcome is Outcome.HELD:
        return Outcome.PROVED, trial.detail, None
    if trial.status is TrialStatus.NO_EXAMPLES:
        return Outcome.VACUOUS, trial.detail, None
    if trial.status is not TrialStatus.TIMEOUT or trial.counterexample is not None:
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
    """Return the outcome of one trial, before its mutants are considered."""
    match trial.status:
        case TrialStatus.REFUTED:
            return Outcome.FALSIFIED, ""
        case TrialStatus.RAISED:
            return Outcome.FALSIFIED, "the subject raised on a valid input"
        case TrialStatus.HELD if not trial.reached:
            return Outcome.VACUOUS, "the subject was never reached: no function of it ran"
        case TrialStatus.HELD if (found := trial.equation_mutants) is not None and found.total and not found.killed:
            return Outcome.VACUOUS, f"it kills none of {found.total} mutants of its equation"
        case TrialStatus.HELD:
            return Outcome.HELD, trial.detail
        case TrialStatus.NO_EXAMPLES:
            return Outcome.VACUOUS, f"no example was valid: {trial.detail}"
        case TrialStatus.NO_PREMISE:
            return Outcome.VACUOUS, trial.detail
        case TrialStatus.NOT_CLAIMED:
            return Outcome.NOT_CLAIMED, trial.detail
        case TrialStatus.SKIPPED | TrialStatus.CANCELLED | TrialStatus.INCONCLUSIVE:
            return Outcome.UNDECIDED, trial.detail
        case TrialStatus.TIMEOUT | TrialStatus.OUT_OF_MEMORY | TrialStatus.CRASHED | TrialStatus.NO_RESULT if (
            trial.counterexample is not None
        ):
            return Outcome.FALSIFIED, f"not shrunk: {trial.detail}"
        case _:
            return Outcome.ERROR, trial.detail


def _sensitivity(
    contract: Contract, falsifier: Falsifier, mutants: tuple[Trial, ...], evidence: Evidence
) -> tuple[Outcome, str]:
    """Return HELD if a falsifier that found nothing can fail: it kills every mutant that it names."""
    small = evidence.mutants.get((falsifier.id, ""))
    if small is not None:
        if small.status is TrialStatus.CANCELLED:
            return Outcome.UNDECIDED, small.detail
        return Outcome.ERROR, f"the clean subject fails at the run's `small` arguments: {small.detail or 'refuted'}"
    if not falsifier.kills:
        return _automatic_sensitivity(falsifier, mutants, evidence)
    required = set(falsifier.kills) if contract.gate.mutants is None else contract.gate.mutants & set(falsifier.kills)
    for trial in mutants:
        if trial.mutant not in required or trial.status is TrialStatus.CANCELLED:
            continue
        if trial.status is TrialStatus.HELD:
            reach = "reached" if trial.mutant_reached else "never reached"
            return Outcome.VACUOUS, f"the mutant {trial.mutant!r} survived it (its code was {reach})"
        if not killed(trial):
            return Outcome.ERROR, f"the mutant {trial.mutant!r} could not be judged: {trial.detail}"
    for trial in mutants:
        if trial.mutant in required and trial.status is TrialStatus.CANCELLED:
            return Outcome.UNDECIDED, trial.detail
    missing = required - {trial.mutant for trial in mutants}
    if missing:
        return Outcome.UNDECIDED, _missing_reason(evidence, f"the mutant {min(missing)!r} was not judged")
    return Outcome.HELD, ""


def _automatic_sensitivity(falsifier: Falsifier, mutants: tuple[Trial, ...], evidence: Evidence) -> tuple[Outcome, str]:
    """Return HELD if a falsifier that names no mutant killed an automatic one in the code that it reaches."""
    if any(map(killed, mutants)) or kills_equation_mutants(evidence, falsifier):
        return Outcome.HELD, ""
    drawn = evidence.automatic.get(falsifier.id)
    cancelled = next((trial for trial in mutants if trial.status is TrialStatus.CANCELLED), None)
    if cancelled is not None:
        return Outcome.UNDECIDED, cancelled.detail
    if drawn is None or len(mutants) < drawn:
        return Outcome.UNDECIDED, _missing_reason(evidence, "no automatic mutant was judged")
    if not drawn:
        return Outcome.VACUOUS, "it kills no mutant: the code it reaches has nothing to mutate; declare one"
    held = sum(trial.status is TrialStatus.HELD for trial in mutants)
    if not held:
        return Outcome.ERROR, f"none of {drawn} automatic mutants could be judged: {mutants[0].detail}"
    return Outcome.VACUOUS, f"it kills no mutant: {drawn} automatic ones in the code it reaches survived"


def _missing_reason(evidence: Evidence, reason: str) -> str:
    """Return why a trial lacks: for this reason, unless the validation was interrupted."""
    return INTERRUPTED if evidence.interrupted else reason


def kills_equation_mutants(evidence: Evidence, falsifier: Falsifier) -> bool:
    """Return whether an equation falsifier killed mutants of its equation."""
    trial = evidence.trials.get((falsifier.id, "cpu"))
    return trial is not None and trial.equation_mutants is not None and trial.equation_mutants.killed > 0


def _recorded(
    contract: Contract, falsifier: Falsifier, device: str, evidence: Evidence, selection: Selection
) -> Result:
    """Return the result of another device: the recorded one, while everything that it depends on is unchanged."""
    required = device in (selection.require | contract.gate.fresh) and in_gate(contract, falsifier)
    record = evidence.recorded.get((falsifier.id, device))
    if record is None:
        outcome, reason = Outcome.UNDECIDED, f"not measured on {device}"
    elif record.changed:
        outcome, reason = Outcome.UNDECIDED, f"stale, changed: {', '.join(record.changed)}"
    else:
        trial = Trial(
            falsifier=falsifier.id,
            device=device,
            status=record.status,
            detail=record.detail,
            valid=record.valid,
            reached=frozenset({device} if record.reached else ()),
        )
        outcome, reason = _outcome(trial)
        reason = "; ".join(filter(None, [reason, f"recorded on {record.hardware.name}, {record.when}"]))
    return Result(
        falsifier=falsifier, device=device, outcome=outcome, reason=reason, required=required, recorded=record
    )
