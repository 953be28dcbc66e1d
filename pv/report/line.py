"""The line of a contract in the text report: one cell a figure, each in its column."""

from collections.abc import Iterator, Mapping, Sequence

from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.report import phrases
from pv.report.figures import claimed_on, count_held, devices, is_of_script, lint_errors, proved, ran, selected, stated
from pv.results.outcome import Outcome
from pv.results.trial import MutationScore
from pv.results.verdict import ContractVerdict, Status

LAST = "remarks"
GAP = "  "


def lines(verdicts: Sequence[ContractVerdict]) -> list[str]:
    """Return a line for each verdict, without its status and name: the same figure of all contracts in one column."""
    return aligned([cells(verdict) for verdict in verdicts])


def aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each row of cells, in the order of the columns, without empty columns."""
    columns = sorted({column for row in rows for column in row if row[column]}, key=_place)
    widths = {column: max(len(row.get(column, "")) for row in rows) for column in columns}
    return [GAP.join(f"{row.get(column, ''):<{widths[column]}}" for column in columns).rstrip() for row in rows]


def _place(column: str) -> tuple[int, str]:
    order = ("cpu", "proved", "mutants", "score")
    return (order.index(column) if column in order else len(order) + (column == LAST), column)


def cells(verdict: ContractVerdict) -> dict[str, str]:
    """Return the cells of the contract's line by column. A figure that the verdict does not have is not a cell."""
    if not ran(verdict) and lint_errors(verdict):
        return {LAST: f"{count(lint_errors(verdict), 'lint error')}, nothing was run"}
    found = {device: _device_cell(verdict, device) for device in devices(verdict)}
    if verdict.proofs:
        number, outcome = proved(verdict)
        found["proved"] = f"{outcome} {number}/{len(verdict.proofs)}"
    if verdict.claimed:
        found["mutants"] = f"mutants {len(verdict.killed)}/{len(verdict.claimed)}"
    if verdict.score is not None:
        found["score"] = _score_cell(verdict.score, verdict.contract.gate.mutation_score)
    return {**found, LAST: ", ".join(_remarks(verdict))}


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


def _remarks(verdict: ContractVerdict) -> Iterator[str]:
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
