"""The sentences that every format shares, so that no two reports say different things of one verdict."""

import json
import math
import shlex
from collections.abc import Iterator, Sequence

from pv.cells import Cell, Outcome, killed
from pv.engines.encoding import show
from pv.evidence import Counterexample, Ending, Trial
from pv.model import Finding, Harness, Severity
from pv.verdict import ContractVerdict, Report

MAX_VALUE = 400
MAX_EXAMPLE = 300
MAX_MUTANTS = 5
MAX_CHANGED = 3
MAX_SURVIVORS = 6
# Worst first; what stands before SURVIVED gets a block of its own.
OUTCOMES = [Outcome.FALSIFIED, Outcome.ERROR, Outcome.VACUOUS, Outcome.UNDECIDED, Outcome.PROVED, Outcome.SURVIVED]
HELD = (Outcome.SURVIVED, Outcome.PROVED)
QUIET = (*HELD, Outcome.UNDECIDED, Outcome.NOT_CLAIMED)


def summary(verdict: ContractVerdict) -> str:
    """A verdict's denominators: what survived of how much, what was killed of how much, what other devices say."""
    return ", ".join(_counts(verdict))


def _counts(verdict: ContractVerdict) -> Iterator[str]:
    errors = _errors(verdict)
    ran = any(cell.trial is not None for cell in verdict.cells)
    if errors:
        yield count(errors, "lint error") + ("" if ran else ", so nothing was run")
    if errors and not ran:
        return
    total = len(verdict.contract.claims)
    if not all(cell.falsifier.bound for cell in verdict.cells):
        yield f"{_unbound(verdict)} unbound (prose), nothing measured"
        return
    for device in sorted({cell.device for cell in verdict.attacks}):
        yield _device(verdict, device)
    if verdict.proofs:
        yield _proved(verdict)
    if verdict.claimed:
        untried = f" ({verdict.untried} not tried)" if verdict.untried else ""
        yield f"{len(verdict.killed)} of {len(verdict.claimed)} mutants killed{untried}"
    changes = [cell.trial.changes for cell in verdict.cells if cell.trial is not None and cell.trial.changes]
    if changes:
        yield f"{sum(c.told_apart for c in changes)} of {sum(c.total for c in changes)} changes of equations told apart"
    if not verdict.cells:
        yield "no falsifier for the devices asked for"
    judged = [cell for cell in verdict.cells if cell.mutants and not cell.falsifier.kills]
    if judged:
        sharp = sum(any(map(killed, cell.mutants)) for cell in judged)
        yield f"{sharp} of {count(len(judged), 'falsifier')} without a declared mutant killed an automatic one"
    yield from _score(verdict)
    if verdict.partial:
        what = "falsifiers and harnesses" if verdict.contract.harnesses else "falsifiers"
        yield f"{len({c.falsifier.id for c in verdict.cells})} of {total} {what} selected"


def _unbound(verdict: ContractVerdict) -> str:
    falsifiers = sum(not cell.falsifier.bound for cell in verdict.attacks)
    harnesses = sum(not cell.falsifier.bound for cell in verdict.proofs)
    text = f"{falsifiers} of {len(verdict.contract.falsifiers)} falsifiers"
    return f"{text}, {harnesses} of {len(verdict.contract.harnesses)} harnesses" if harnesses else text


def _proved(verdict: ContractVerdict) -> str:
    proved = [cell for cell in verdict.proofs if cell.outcome is Outcome.PROVED]
    recorded = sum(cell.recorded is not None for cell in proved)
    return f"{len(proved)} of {len(verdict.proofs)} proved" + (f" ({recorded} recorded)" if recorded else "")


def _score(verdict: ContractVerdict) -> Iterator[str]:
    """The recorded mutation score: its denominator, its freshness, and what the gate asks for."""
    score, least = verdict.score, verdict.contract.gate.mutation_score
    asked = f"; the gate asks for {least:.0%}" if least is not None else ""
    if score is None:
        if least is not None:
            yield f"mutation score not recorded{asked}: pv mutate {verdict.contract.id} --record"
        return
    share = "none" if score.value is None else f"{math.floor(score.value * 1000) / 10:g} %"
    parts = [f"{score.killed} of {score.judged} killed"]
    parts += [f"{score.equivalent} equivalent"] if score.equivalent else []
    parts += [f"a sample of {score.sampled} of {score.total}"] if score.sample else []
    asked += ", and a sample satisfies no gate" if asked and score.sample else ""
    parts += [f"of {count(len(places), 'named place')}"] if (places := score.mutated) else []
    fresh = f"stale, changed: {_few(score.changed)}" if score.changed else "fresh"
    yield f"mutation score {share} ({', '.join(parts)}; recorded {score.when}, {fresh}{asked})"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_CHANGED} more" if len(names) > MAX_CHANGED else ""
    return ", ".join(names[:MAX_CHANGED]) + more


def _errors(verdict: ContractVerdict) -> int:
    return sum(finding.severity is not Severity.NOTICE for finding in verdict.findings)


def _device(verdict: ContractVerdict, device: str) -> str:
    unclaimed = verdict.count(device, Outcome.NOT_CLAIMED)
    held, total = verdict.count(device, *HELD), verdict.total(device) - unclaimed
    cells = [cell for cell in verdict.attacks if cell.device == device and cell.outcome is not Outcome.NOT_CLAIMED]
    if not cells:
        return f"{unclaimed} not claimed"
    if any(cell.trial for cell in cells):
        name = "" if device == "cpu" else f" on {device}"
        beside = f" ({unclaimed} not claimed)" if unclaimed else ""
        return f"{held} of {total} falsifiers survived{name}{beside}"
    records = [cell.recorded for cell in cells if cell.recorded is not None]
    stale = sum(bool(record.changed) for record in records)
    if stale:
        return f"{device.upper()} {held} of {total} (recorded, {stale} stale)"
    if records:
        return f"{device.upper()} {held} of {total} (recorded on {records[0].hardware.name}, {records[0].when})"
    return f"{device.upper() if device != 'cpu' else 'CPU'} {held} of {total} ({cells[0].reason})"


def title(verdict: ContractVerdict) -> str:
    """A contract's name, and what was attacked where that is not its own subject."""
    name = f"{verdict.contract.id} {verdict.contract.version}".strip()
    return f"{name} on {verdict.subject}" if verdict.subject else name


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def blocks(verdict: ContractVerdict) -> list[Cell]:
    """What needs a reader each by itself, worst first: failures, and proofs that were tried and not found."""
    failed = [cell for cell in verdict.cells if cell.outcome not in QUIET or _unproved(cell)]
    return sorted(failed, key=lambda cell: OUTCOMES.index(cell.outcome))


def _unproved(cell: Cell) -> bool:
    searched = cell.trial is not None and cell.trial.ending in (Ending.TIME, Ending.UNSETTLED)
    return searched and isinstance(cell.falsifier, Harness) and cell.outcome is Outcome.UNDECIDED


def undecided(verdict: ContractVerdict) -> dict[str, list[Cell]]:
    """The required cells that say nothing, by reason; empty where lint has said why nothing ran."""
    grouped: dict[str, list[Cell]] = {}
    ran = any(cell.trial for cell in verdict.cells)
    for cell in verdict.cells:
        bound = cell.falsifier.bound
        said = _unproved(cell) or not (cell.required and bound)
        if cell.outcome is Outcome.UNDECIDED and not said and (ran or not _errors(verdict)):
            grouped.setdefault(cell.reason, []).append(cell)
    return grouped


def close_to_their_limit(verdict: ContractVerdict) -> Iterator[tuple[Cell, str]]:
    """The proofs that a slower or busier machine may not find in time, and what to say of them."""
    for cell in verdict.proofs:
        harness, trial = cell.falsifier, cell.trial
        if isinstance(harness, Harness) and trial is not None and cell.outcome is Outcome.PROVED and cell.strained:
            limit = f"more than half of its limit of {harness.whole_limit_s:g} s"
            yield cell, f"{cell.reason}; with its start {trial.seconds:.2f} s, {limit}"


def lines(cell: Cell, verdict: ContractVerdict, report: Report) -> Iterator[tuple[str, str]]:
    """What a reader needs to know of a cell, as label and text."""
    yield "claim", cell.falsifier.rule
    if cell.falsifier.prediction:
        yield "predicted", cell.falsifier.prediction
    if isinstance(cell.falsifier, Harness):
        yield "over", cell.falsifier.box
    if cell.reason:
        yield "because", cell.reason
    trial = cell.trial
    found = trial.counterexample if trial is not None else None
    if found is not None:
        yield from _seen(found, cell.reason)
    if cell.outcome is Outcome.FALSIFIED:
        yield "usually", cell.falsifier.if_fails
    yield from _mutants(cell, verdict)
    if cell.outcome is Outcome.VACUOUS:
        yield from (("survivor", text) for text in list(survivors(cell, verdict))[:MAX_SURVIVORS])
    if trial is not None:
        yield "tried", effort(cell, trial)
        if cell.outcome is Outcome.ERROR and trial.output.text.strip():
            yield "printed", trial.output.text.strip()[-2000:]
        yield "repeat", command(cell, report)
        if any(word.startswith("--replay") for word in report.repeat):
            return
        example = json.dumps(dict(found.arguments)) if found is not None and found.exact else ""
        by_name = isinstance(cell.falsifier, Harness) or (cell.falsifier.by_equation and len(example) <= MAX_EXAMPLE)
        if example and by_name:
            yield "replay", f"{command(cell, report)} --replay {shlex.quote(example)}"
        elif found is not None and found.blob:
            yield "replay", f"{command(cell, report)} --replay {shlex.quote(f'{found.hypothesis}:{found.blob}')}"


def _mutants(cell: Cell, verdict: ContractVerdict) -> Iterator[tuple[str, str]]:
    """The faults that a falsifier failed to see, or could not be tried on."""
    if not cell.falsifier.kills:
        shown = cell.mutants if cell.outcome in (Outcome.VACUOUS, Outcome.ERROR) else ()
        yield from (
            ("mutant", f"{trial.mutant}: {trial.detail or trial.ending.value}") for trial in shown[:MAX_MUTANTS]
        )
        return
    for trial in cell.mutants:
        mutant = verdict.contract.mutant(trial.mutant or "")
        if cell.outcome is Outcome.VACUOUS and trial.ending is Ending.HELD:
            reach = "its code was reached" if trial.mutant_reached else "its code was never reached"
            yield "survivor", f"{mutant.id}: {mutant.fault} ({mutant.where}); {reach}"
        elif cell.outcome is Outcome.ERROR and trial.detail:
            yield "mutant", f"{mutant.id}: {trial.ending.value}: {trial.detail} ({mutant.where})"


def survivors(cell: Cell, verdict: ContractVerdict) -> Iterator[str]:
    """The changes of its equation that a falsifier did not tell from it, each with its place in the contract."""
    changes = cell.trial.changes if cell.trial is not None else None
    texts = {equation.name: equation.texts for equation in verdict.contract.equations}
    for each in changes.survivors if changes is not None else ():
        place = texts.get(each.equation, {}).get("expression")
        where = place(each.line, each.column) if place is not None else cell.falsifier.where
        yield f"{where} {each.equation}: {each.after} for {each.before}"


def notes(report: Report) -> list[str]:
    """What a reader should know of the whole: the report's own notes, and tolerances that somebody set."""
    return [*report.notes, *(text for verdict in report.contracts for text in _tolerances(verdict))]


def _tolerances(verdict: ContractVerdict) -> Iterator[str]:
    tried = {cell.falsifier.equation for cell in verdict.cells if cell.falsifier.by_equation}
    for equation in verdict.contract.equations:
        said = equation.executable.get("tolerance")
        if said is not None and equation.name in tried:
            bounds = ", ".join(f"{key} {said[key]:g}" for key in ("relative", "absolute") if key in said)
            yield f"{verdict.contract.id}: the tolerance of {equation.name} is set, {bounds}: {said['why']}"


def _seen(found: Counterexample, reason: str) -> Iterator[tuple[str, str]]:
    if found.error != reason:
        yield "seen", found.error
    for name, value in found.arguments.items():
        text = show(value)
        yield "with", f"{name} = {text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + '...'}"
    if found.frames:
        yield "at", found.frames[-1]


def effort(cell: Cell, trial: Trial) -> str:
    """How hard the claim of a cell was tried."""
    if isinstance(cell.falsifier, Harness):
        return trial.detail if trial.ending is Ending.HELD else f"for {trial.seconds:.2f} s"
    return tried(trial)


def tried(trial: Trial) -> str:
    """How hard it was tried."""
    if trial.ending in (Ending.TIME, Ending.MEMORY, Ending.CRASHED, Ending.SILENT):
        return f"for {trial.seconds:.2f} s, seed {trial.seed}"  # how many examples that were, nobody was left to say
    asked = f" of {trial.asked} asked for" if trial.ending is Ending.HELD and trial.valid < trial.asked else ""
    rejected = f" ({trial.invalid} rejected)" if trial.invalid else ""
    found = trial.changes
    apart = f", {found.told_apart} of {found.total} changes of its equation told apart" if found is not None else ""
    return f"{count(trial.valid, 'valid example')}{asked}{rejected}{apart}, seed {trial.seed}, {trial.seconds:.2f} s"


def command(cell: Cell, report: Report) -> str:
    """The command that repeats a cell."""
    device = [f"--device {cell.device}"] if cell.device != "cpu" else []
    return " ".join(["pv validate", *report.repeat, f"--only {shlex.quote(cell.falsifier.id)}", *device])


def loose_findings(report: Report) -> list[Finding]:
    """Findings worth showing: all but the notices, which are counted."""
    return [finding for finding in report.findings if finding.severity is not Severity.NOTICE]


def closing(report: Report) -> str:
    """The last line: how it ended, in how long, on what."""
    statuses = [verdict.status.value for verdict in report.contracts]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("fail", "undecided", "pass"))
    devices = ", ".join(f"{name} {info.name}".strip() for name, info in report.devices.items()) or "no device"
    notices = sum(finding.severity is Severity.NOTICE for finding in report.findings)
    noted = f", {count(notices, 'notice')} (pv lint shows them)" if notices else ""
    return f"{counts}{noted}; {report.seconds:.1f} s on {devices}; seed {report.seed}; exit {report.exit_code}"
