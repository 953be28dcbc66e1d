"""A contract's verdict as one sentence, and as a line of the text report with one figure in each column."""

from collections.abc import Iterator, Mapping, Sequence

from pv.contract.wording import FEW, count, listed
from pv.engines.registry import engine_of
from pv.report import phrases
from pv.report.phrases import claimed_on, count_held, devices, is_of_script, lint_errors, proved, ran, selected, stated
from pv.results.outcome import Outcome, Result, killed
from pv.results.trial import MutationScore
from pv.results.verdict import ContractVerdict, Status


def sentence(verdict: ContractVerdict) -> str:
    """Return one sentence with the numbers of claims that held, proofs and killed mutants, by device."""
    return ", ".join(_counts(verdict))


def _counts(verdict: ContractVerdict) -> Iterator[str]:
    errors = lint_errors(verdict)
    if errors:
        yield count(errors, "lint error") + ("" if ran(verdict) else ", so nothing was run")
    if errors and not ran(verdict):
        return
    if not all(engine_of(result.falsifier).bound for result in verdict.results):
        yield f"{stated(verdict)}: their tests are prose"
        return
    yield from (_device(verdict, device) for device in devices(verdict))
    yield from _searches(verdict)
    claimed = [result.falsifier for result in verdict.results if result.outcome is not Outcome.NOT_CLAIMED]
    if faults := {fault for claim in claimed for fault in claim.options.get("faults", ())}:
        yield f"its claims detect {count(len(faults), 'fault')} planted in the suite's own subject"
    if not verdict.results:
        yield verdict.absent or "no falsifier for the devices asked for"
    yield from (f"nothing claimed on {device}" for device in verdict.unclaimed)
    yield from _score(verdict)
    yield from phrases.caveats(verdict)
    if verdict.partial:
        kinds = "falsifiers and harnesses" if verdict.contract.harnesses else "falsifiers"
        kinds = "claims" if is_of_script(verdict) else kinds
        yield f"{selected(verdict)} of {len(verdict.contract.claims)} {kinds} selected"


def _searches(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the counts of proofs, declared mutants, equation mutants, and falsifiers that killed a generated mutant."""
    if verdict.proofs:
        recorded = sum(result.recorded is not None for result in verdict.proofs if result.outcome is Outcome.PROVED)
        of_records = f" ({recorded} recorded)" if recorded else ""
        number, outcome = proved(verdict)
        yield f"{number} of {len(verdict.proofs)} {outcome}{of_records}"
    if verdict.claimed:
        untried = f" ({verdict.untried} not tried)" if verdict.untried else ""
        yield f"{len(verdict.killed)} of {len(verdict.claimed)} mutants killed{untried}"
    trials = [result.trial for result in verdict.results if result.trial is not None]
    of_equations = [trial.equation_mutants for trial in trials if trial.equation_mutants]
    if of_equations:
        yield f"{sum(e.killed for e in of_equations)} of {sum(e.total for e in of_equations)} equation mutants killed"
    judged = [result for result in verdict.results if result.mutants and not result.falsifier.kills]
    if judged:
        sharp = sum(any(map(killed, result.mutants)) for result in judged)
        yield f"{sharp} of {count(len(judged), 'falsifier')} without a declared mutant killed a generated one"


def _device(verdict: ContractVerdict, device: str) -> str:
    """Return the number of claims that held on one device, measured now or recorded."""
    results = claimed_on(verdict, device)
    unclaimed = verdict.total(device) - len(results)
    not_claimed = "not reached" if is_of_script(verdict) else Outcome.NOT_CLAIMED.value
    if not results:
        return f"{unclaimed} {not_claimed}"
    figure = f"{count_held(results)} of {len(results)}"
    if any(result.trial for result in results):
        beside = f" ({unclaimed} {not_claimed})" if unclaimed else ""
        noun = "claims" if is_of_script(verdict) else "falsifiers"
        return f"{figure} {noun} held{'' if device == 'cpu' else f' on {device}'}{beside}"
    return f"{device.upper()} {figure} ({_source(results)})"


def _source(results: Sequence[Result]) -> str:
    """Return where results without a trial come from: fresh or stale records, or the reason why there is no record."""
    records = [result.recorded for result in results if result.recorded is not None]
    stale = sum(bool(record.changed) for record in records)
    if stale:
        return f"recorded, {stale} stale"
    places = sorted({f"{record.hardware.name}, {record.when}" for record in records})
    return f"recorded on {'; '.join(places)}" if places else results[0].reason


def _score(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the recorded mutation score with its counts, whether it is stale, and the requirement of the gate."""
    score, least = verdict.score, verdict.contract.gate.mutation_score
    requirement = f"; the gate asks for {least * 100:g} %" if least is not None else ""
    if score is None:
        if least is not None:
            yield f"mutation score not recorded{requirement}: pv mutate {verdict.contract.id} --record"
        return
    parts = [f"{score.killed} of {score.judged} killed"]
    parts += [f"{score.equivalent} equivalent"] if score.equivalent else []
    parts += [f"a sample of {score.sampled} of {score.total}"] if score.sample else []
    requirement += ", and a sample satisfies no gate" if requirement and score.sample else ""
    parts += [f"of {count(len(names), 'module')}"] if (names := score.scope) else []
    fresh = f"stale, changed: {listed(score.changed, FEW)}" if score.changed else "fresh"
    yield f"mutation score {score.percent} ({', '.join(parts)}; recorded {score.when}, {fresh}{requirement})"


LAST = "remarks"
GAP = "  "


def contract_lines(verdicts: Sequence[ContractVerdict]) -> list[str]:
    """Return one line for every verdict, without status and name; equal figures share a column."""
    return aligned([line_cells(verdict) for verdict in verdicts])


def aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return one line for every row, with aligned cells and without empty columns."""
    # Devices other than the CPU come between the score and the remarks, by name.
    columns = sorted({column for row in rows for column in row if row[column]}, key=_column_order)
    widths = {column: max(len(row.get(column, "")) for row in rows) for column in columns}
    return [GAP.join(f"{row.get(column, ''):<{widths[column]}}" for column in columns).rstrip() for row in rows]


def _column_order(column: str) -> tuple[int, str]:
    order = ("cpu", "proved", "mutants", "score")
    return (order.index(column) if column in order else len(order) + (column == LAST), column)


def line_cells(verdict: ContractVerdict) -> dict[str, str]:
    """Return the cells of a contract's line, by column; figures that the verdict does not have are left out."""
    if not ran(verdict) and lint_errors(verdict):
        return {LAST: f"{count(lint_errors(verdict), 'lint error')}, nothing was run"}
    cells = {device: _device_cell(verdict, device) for device in devices(verdict)}
    if verdict.proofs:
        number, outcome = proved(verdict)
        cells["proved"] = f"{outcome} {number}/{len(verdict.proofs)}"
    if verdict.claimed:
        cells["mutants"] = f"mutants {len(verdict.killed)}/{len(verdict.claimed)}"
    if verdict.score is not None:
        cells["score"] = _score_cell(verdict.score, verdict.contract.gate.mutation_score)
    return {**cells, LAST: ", ".join(_line_remarks(verdict))}


def _device_cell(verdict: ContractVerdict, device: str) -> str:
    results = claimed_on(verdict, device)
    figure = f"{count_held(results)}/{len(results)}"
    if device == "cpu":
        return f"{'claims' if is_of_script(verdict) else 'falsifiers'} {figure}"
    if any(result.trial for result in results):
        return f"{device} {figure}"
    records = [result.recorded for result in results if result.recorded is not None]
    stale = sum(bool(record.changed) for record in records)
    if not records:
        return f"{device} {figure} not measured"
    return f"{device} {figure} recorded" + (f", {stale} stale" if stale else "")


def _score_cell(score: MutationScore, least: float | None) -> str:
    remarks = ["stale"] if score.changed else []
    remarks += ["a sample"] if score.sample else []
    remarks += [f"gate {least * 100:g} %"] if least is not None else []
    return f"score {score.percent}" + (f" ({', '.join(remarks)})" if remarks else "")


def _line_remarks(verdict: ContractVerdict) -> Iterator[str]:
    if errors := lint_errors(verdict):
        yield count(errors, "lint error")
    if not all(engine_of(result.falsifier).bound for result in verdict.results):
        yield stated(verdict)
    if not verdict.results:
        yield verdict.absent or "no falsifier for the devices asked for"
    yield from (f"nothing claimed on {device}" for device in verdict.unclaimed)
    if unclaimed := sum(result.outcome is Outcome.NOT_CLAIMED for result in verdict.attacks):
        yield f"{unclaimed} {'not reached' if is_of_script(verdict) else 'not claimed'}"
    undecided = sum(result.outcome is Outcome.UNDECIDED and result.trial is not None for result in verdict.attacks)
    if undecided and verdict.status is Status.FAIL:
        yield f"{undecided} undecided"
    if verdict.score is None and verdict.contract.gate.mutation_score is not None:
        yield f"no mutation score recorded: pv mutate {verdict.contract.id} --record"
    yield from phrases.caveats(verdict)
    if verdict.partial:
        yield f"{selected(verdict)} of {len(verdict.contract.claims)} selected"
