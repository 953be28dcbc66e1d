"""A contract's verdict as one sentence, and as a line of the text report with one figure in each column."""

from collections.abc import Iterator, Mapping, Sequence

from pv.contract.wording import FEW, count, listed
from pv.engines.registry import engine_of
from pv.report import phrases
from pv.results.evidence import MutationScore
from pv.results.outcome import Outcome, Result, killed
from pv.results.verdict import ContractVerdict, Status


def sentence(verdict: ContractVerdict) -> str:
    """Return one sentence: the numbers of claims that held (by device), of proofs, and of killed mutants, and remarks.

    Remarks are, among others, lint errors, the mutation score, and the reasons why the figures are incomplete.
    """
    return ", ".join(_counts(verdict))


def _counts(verdict: ContractVerdict) -> Iterator[str]:
    errors = phrases.count_lint_errors(verdict)
    if errors:
        yield count(errors, "lint error") + ("" if phrases.was_run(verdict) else ", so nothing was run")
    if errors and not phrases.was_run(verdict):
        return
    prose = sum(not engine_of(result.falsifier).bound for result in verdict.results)
    if prose and prose == len(verdict.results):
        yield f"{phrases.describe_claims(verdict)}: their tests are prose"
        return
    yield from (_held_on(verdict, device) for device in phrases.devices(verdict))
    yield from _proofs_and_mutants(verdict)
    claimed = [result.falsifier for result in verdict.results if result.outcome is not Outcome.NOT_CLAIMED]
    if faults := {fault for claim in claimed for fault in claim.options.get("faults", ())}:
        yield f"its claims detect {count(len(faults), 'fault')} planted in the suite's own subject"
    if not verdict.results:
        yield verdict.absent or "no falsifier for the requested devices"
    yield from (f"nothing claimed on {device}" for device in verdict.unclaimed_devices)
    yield from _score(verdict)
    if prose:
        yield f"{count(prose, 'claim')} not run, with prose in place of a test"
    yield from phrases.caveats(verdict)
    if verdict.partial:
        kinds = "falsifiers and harnesses" if verdict.contract.harnesses else "falsifiers"
        kinds = "claims" if phrases.is_of_script(verdict) else kinds
        yield f"{phrases.count_selected(verdict)} of {len(verdict.contract.claims)} {kinds} selected"


def _proofs_and_mutants(verdict: ContractVerdict) -> Iterator[str]:
    """Yield counts of proofs, declared and equation mutants killed, and falsifiers that killed a generated mutant."""
    if verdict.proofs:
        recorded = sum(result.recorded is not None for result in verdict.proofs if result.outcome is Outcome.PROVED)
        remark = f" ({recorded} recorded)" if recorded else ""
        number, outcome = phrases.count_proved(verdict)
        yield f"{number} of {len(verdict.proofs)} {outcome}{remark}"
    if verdict.claimed_mutants:
        untried = f" ({verdict.untried} not tried)" if verdict.untried else ""
        yield f"{len(verdict.killed)} of {len(verdict.claimed_mutants)} mutants killed{untried}"
    trials = [result.trial for result in verdict.results if result.trial is not None]
    equations = [trial.equation_mutants for trial in trials if trial.equation_mutants]
    if equations:
        yield f"{sum(e.killed for e in equations)} of {sum(e.total for e in equations)} equation mutants killed"
    judged = [result for result in verdict.results if result.mutants and not result.falsifier.kills]
    if judged:
        killers = sum(any(map(killed, result.mutants)) for result in judged)
        yield f"{killers} of {count(len(judged), 'falsifier')} without a declared mutant killed a generated mutant"


def _held_on(verdict: ContractVerdict, device: str) -> str:
    """Return a text with the number of claims that held on one device, measured now or recorded."""
    results = phrases.claimed_results(verdict, device)
    unclaimed = verdict.total(device) - len(results)
    not_claimed = "not reached" if phrases.is_of_script(verdict) else Outcome.NOT_CLAIMED.value
    if not results:
        return f"{unclaimed} {not_claimed}"
    figure = f"{phrases.count_held(results)} of {len(results)}"
    if any(result.trial for result in results):
        remark = f" ({unclaimed} {not_claimed})" if unclaimed else ""
        noun = "claims" if phrases.is_of_script(verdict) else "falsifiers"
        return f"{figure} {noun} held{'' if device == 'cpu' else f' on {device}'}{remark}"
    return f"{device.upper()} {figure} ({_source(results)})"


def _source(results: Sequence[Result]) -> str:
    """Return the source of results without a trial: their records, or the reason why there is no record."""
    records = [result.recorded for result in results if result.recorded is not None]
    stale = sum(bool(record.changed) for record in records)
    if stale:
        return f"recorded, {stale} stale"
    places = sorted({f"{record.hardware.name}, {record.when}" for record in records})
    return f"recorded on {'; '.join(places)}" if places else results[0].reason


def _score(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the recorded mutation score with its counts, whether it is stale, and the requirement of the gate."""
    score, least = verdict.score, verdict.contract.gate.mutation_score
    requirement = f"; the gate requires {least * 100:g} %" if least is not None else ""
    if score is None:
        if least is not None:
            yield f"mutation score not recorded{requirement}: pv mutate {verdict.contract.id} --record"
        return
    parts = [f"{score.killed} of {score.judged} killed"]
    parts += [f"{score.equivalent} equivalent"] if score.equivalent else []
    parts += [f"a sample of {score.sampled} of {score.total}"] if score.is_sample else []
    requirement += ", and a sample satisfies no gate" if requirement and score.is_sample else ""
    parts += [f"of {count(len(names), 'module')}"] if (names := score.scope) else []
    fresh = f"stale, changed: {listed(score.changed, FEW)}" if score.changed else "fresh"
    yield f"mutation score {score.percent} ({', '.join(parts)}; recorded {score.when}, {fresh}{requirement})"


REMARKS = "remarks"
"""The name of the last column."""
GAP = "  "


def contract_lines(verdicts: Sequence[ContractVerdict]) -> list[str]:
    """Return one line for every verdict, without status and name; equal figures share a column."""
    return aligned([line_cells(verdict) for verdict in verdicts])


def aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return one line for every row, with aligned cells and without empty columns."""
    columns = sorted({column for row in rows for column in row if row[column]}, key=_column_order)
    widths = {column: max(len(row.get(column, "")) for row in rows) for column in columns}
    return [GAP.join(f"{row.get(column, ''):<{widths[column]}}" for column in columns).rstrip() for row in rows]


def _column_order(column: str) -> tuple[int, str]:
    """Return the sort key of a column: the leading columns, then devices other than the CPU, then remarks."""
    leading = ("cpu", "proved", "mutants", "score")
    return (leading.index(column) if column in leading else len(leading) + (column == REMARKS), column)


def line_cells(verdict: ContractVerdict) -> dict[str, str]:
    """Return the cells of a contract's line, by column. Leave out figures that the verdict does not have."""
    if not phrases.was_run(verdict) and phrases.count_lint_errors(verdict):
        return {REMARKS: f"{count(phrases.count_lint_errors(verdict), 'lint error')}, nothing was run"}
    cells = {device: _device_cell(verdict, device) for device in phrases.devices(verdict)}
    if verdict.proofs:
        number, outcome = phrases.count_proved(verdict)
        cells["proved"] = f"{outcome} {number}/{len(verdict.proofs)}"
    if verdict.claimed_mutants:
        cells["mutants"] = f"mutants {len(verdict.killed)}/{len(verdict.claimed_mutants)}"
    if verdict.score is not None:
        cells["score"] = _score_cell(verdict.score, verdict.contract.gate.mutation_score)
    return {**cells, REMARKS: ", ".join(_line_remarks(verdict))}


def _device_cell(verdict: ContractVerdict, device: str) -> str:
    results = phrases.claimed_results(verdict, device)
    figure = f"{phrases.count_held(results)}/{len(results)}"
    if device == "cpu":
        return f"{'claims' if phrases.is_of_script(verdict) else 'falsifiers'} {figure}"
    if any(result.trial for result in results):
        return f"{device} {figure}"
    records = [result.recorded for result in results if result.recorded is not None]
    stale = sum(bool(record.changed) for record in records)
    if not records:
        return f"{device} {figure} not measured"
    return f"{device} {figure} recorded" + (f", {stale} stale" if stale else "")


def _score_cell(score: MutationScore, least: float | None) -> str:
    remarks = ["stale"] if score.changed else []
    remarks += ["a sample"] if score.is_sample else []
    remarks += [f"gate {least * 100:g} %"] if least is not None else []
    return f"score {score.percent}" + (f" ({', '.join(remarks)})" if remarks else "")


def _line_remarks(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the remarks of a contract's line: the reasons why its figures do not show the complete result."""
    if errors := phrases.count_lint_errors(verdict):
        yield count(errors, "lint error")
    if not all(engine_of(result.falsifier).bound for result in verdict.results):
        yield phrases.describe_claims(verdict)
    if not verdict.results:
        yield verdict.absent or "no falsifier for the requested devices"
    yield from (f"nothing claimed on {device}" for device in verdict.unclaimed_devices)
    if unclaimed := sum(result.outcome is Outcome.NOT_CLAIMED for result in verdict.attacks):
        yield f"{unclaimed} {'not reached' if phrases.is_of_script(verdict) else 'not claimed'}"
    undecided = sum(result.outcome is Outcome.UNDECIDED and result.trial is not None for result in verdict.attacks)
    if undecided and verdict.status is Status.FAIL:
        yield f"{undecided} undecided"
    if verdict.score is None and verdict.contract.gate.mutation_score is not None:
        yield f"no mutation score recorded: pv mutate {verdict.contract.id} --record"
    yield from phrases.caveats(verdict)
    if verdict.partial:
        yield f"{phrases.count_selected(verdict)} of {len(verdict.contract.claims)} selected"
