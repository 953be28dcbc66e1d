"""The section of one contract: verdict, failures, kill matrix, reference runs, all results with their evidence."""

from collections.abc import Iterator, Mapping
from datetime import date
from itertools import groupby

from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.report import details, phrases, places
from pv.report.figures import is_of_script
from pv.report.html import charts
from pv.report.html.markup import Cell, Html, hidden, join, named, table, tag
from pv.report.summary import sentence
from pv.results import gates
from pv.results.outcome import Result, killed
from pv.results.trial import Recorded, Trial, TrialStatus
from pv.results.verdict import ContractVerdict, Report

SYMBOLS = {
    "fail": "✗",
    "falsified": "✗",
    "error": "!",
    "vacuous": "○",
    "undecided": "?",
    "not claimed": "–",
    "not reached": "–",
    "held": "✓",
    "proved": "✓",
    "pass": "✓",
    "weaker": "✗",
}
MAX_BLOCKS = 50


def badge(word: str) -> Html:
    """Return a verdict or outcome as a symbol and a word, so that it does not depend on color."""
    symbol = tag("span", SYMBOLS[word], aria_hidden="true")
    return tag("span", symbol, f" {word}", class_=f"badge {word.replace(' ', '-')}")


def section(verdict: ContractVerdict, report: Report, number: int) -> Html:
    """Return the section of a contract."""
    name = f"contract-{number}"
    title = tag("h2", phrases.title(verdict), " ", badge(verdict.status.value), id=f"{name}-title")
    head = [title, tag("p", sentence(verdict)), tag("p", str(verdict.contract.location.path), class_="path")]
    blocks = phrases.blocks(verdict)
    if is_of_script(verdict):
        head = [tag("h2", "Findings" if blocks else "Claims", id=f"{name}-title"), tag("p", sentence(verdict))]
    rest = len(blocks) - MAX_BLOCKS
    omitted = tag("p", f"The table has {count(rest, 'more failure')}.") if rest > 0 else None
    body = [
        None if blocks and is_of_script(verdict) else _gate(verdict),
        [_block(result, verdict) for result in blocks[:MAX_BLOCKS]],
        omitted,
        [tag("p", f"{reason}: {_names(results)}") for reason, results in phrases.unfounded(verdict)],
        kill_matrix(verdict),
        [charts.run(trace) for trace in verdict.runs],
        _results(verdict, report),
    ]
    return tag("section", head, body, class_="contract", id=name, aria_labelledby=f"{name}-title")


def _gate(verdict: ContractVerdict) -> Html:
    reasons = gates.unmet(verdict)
    if not reasons:
        return join(None)
    items = [tag("li", reason) for reason in reasons]
    return join([tag("h3", "Not met"), tag("ul", items)])


def _names(results: list[Result]) -> str:
    return ", ".join(result.falsifier.id for result in results)


def _block(result: Result, verdict: ContractVerdict) -> Html:
    """Return a failure with its counterexample and the commands that repeat it."""
    heading = tag("h3", badge(result.outcome.value), f" {result.falsifier.id}{phrases.on_device(result)}")
    place = tag("p", places.of_script(result) or places.claim(result), class_="path")
    # Adjacent rows with the same label, such as the arguments of a counterexample, share one heading.
    groups = groupby(details.lines(result, verdict), key=lambda line: line[0])
    listed = [(tag("dt", label), [tag("dd", tag("pre", text)) for _, text in same]) for label, same in groups]
    return tag("article", heading, place, tag("dl", listed), data_search=True)


def _results(verdict: ContractVerdict, report: Report) -> Html:
    if not verdict.results:
        return join(None)
    if is_of_script(verdict):
        heads = named("result", "claim", "tried", "rule")
        rows = [_row_of_script(result) for result in verdict.results]
    else:
        heads = named("outcome", "claim", "device", "tried", "evidence", "rule")
        rows = [_row(result, verdict, report) for result in verdict.results]
    shown = table(f"All results of {verdict.contract.id}", heads, rows)
    return tag("details", tag("summary", f"All results ({count(len(rows), 'result')})"), shown)


def _row_of_script(result: Result) -> list[Cell]:
    effort = engine_of(result.falsifier).effort(result.trial) if result.trial is not None else result.reason
    cells = (effort, result.falsifier.rule)
    return [Cell(badge(phrases.outcome(result))), Cell(result.falsifier.id, head=True), *map(Cell, cells)]


def _row(result: Result, verdict: ContractVerdict, report: Report) -> list[Cell]:
    kind = engine_of(result.falsifier)
    effort = kind.effort(result.trial) if result.trial is not None else result.reason
    missed = [tag("li", text) for text in details.survivors(result, verdict)]
    unseen = tag("ul", missed, aria_label="Equation mutants that survived") if missed else None
    return [
        Cell(badge(result.outcome.value)),
        Cell(result.falsifier.id, head=True),
        Cell(result.device),
        Cell(effort),
        Cell(" ".join(evidence(result, report))),
        Cell([result.falsifier.rule, unseen]),
    ]


def evidence(result: Result, report: Report) -> Iterator[str]:
    """Yield where and when a result was measured: now, or on the device and date of its record."""
    if result.recorded is not None:
        yield _record(result.recorded, report)
    elif result.trial is not None:
        info = report.devices.get(result.device)
        yield f"measured now{f' on {info.name}' if info is not None and info.name else ''}"
    else:
        yield "none"


def _record(recorded: Recorded, report: Report) -> str:
    torch = f", torch {recorded.hardware.torch}" if recorded.hardware.torch else ""
    stale = f"; stale, changed: {', '.join(recorded.changed)}" if recorded.changed else ""
    return f"recorded on {recorded.hardware.name}{torch}, {recorded.when}{_age(recorded.when, report.started)}{stale}"


def _age(when: str, started: str) -> str:
    """Return the age of a record in days at the time of the report; "" if a date is invalid."""
    try:
        days = (date.fromisoformat(started[:10]) - date.fromisoformat(when)).days
    except ValueError:
        return ""
    return f" ({count(days, 'day')} before this report)" if days >= 0 else ""


# A larger matrix is mostly empty; it is then listed by mutant.
MAX_CELLS = 3000
MARKS = {"killed": "✓", "survived": "✗", "not judged": "–", "not tried": "·"}


def kill_matrix(verdict: ContractVerdict) -> Html:
    """Return the matrix of falsifiers and mutants; empty if no falsifier was tried on mutants."""
    rows = [result for result in verdict.results if _judges(result)]
    mutants = {mutant.id: mutant.fault for mutant in verdict.contract.mutants}
    automatic = any(not result.falsifier.kills and result.mutants for result in rows)
    equations = any(result.trial is not None and result.trial.equation_mutants for result in rows)
    if not rows:
        return join(None)
    small = len(rows) * len(mutants) <= MAX_CELLS
    shown = _small(rows, mutants, automatic, equations) if small else _kill_list(rows, mutants)
    return tag("details", tag("summary", f"Planted faults ({len(mutants)} declared)"), shown, open=small)


def _judges(result: Result) -> bool:
    equations = result.trial is not None and result.trial.equation_mutants is not None
    return result.device == "cpu" and bool(result.falsifier.kills or result.mutants or equations)


def _small(rows: list[Result], mutants: Mapping[str, str], automatic: bool, equations: bool) -> Html:
    heads = named("falsifier") | {id_: tag("span", id_, title=fault) for id_, fault in mutants.items()}
    heads |= named("automatic mutants") if automatic else {}
    heads |= named("equation mutants") if equations else {}
    return table(
        "Falsifiers and the faults they kill", heads, [_kill_row(r, mutants, automatic, equations) for r in rows]
    )


def _kill_row(result: Result, mutants: Mapping[str, str], automatic: bool, equations: bool) -> list[Cell]:
    trials = {trial.mutant: trial for trial in result.mutants}
    cells = [_kill_cell(outcome_text(result, id_, trials.get(id_))) for id_ in mutants]
    cells += [_counted(_automatic(result))] if automatic else []
    cells += [_counted(_equations(result))] if equations else []
    return [Cell(result.falsifier.id, head=True), *cells]


def _counted(text: str) -> Cell:
    return Cell(text, class_="mutant" if text else "mutant unnamed")


def outcome_text(result: Result, mutant: str, trial: Trial | None) -> str:
    """Return the outcome of a declared mutant for a falsifier; "" if the falsifier does not name the mutant."""
    if mutant not in result.falsifier.kills:
        return ""
    if trial is None or trial.status is TrialStatus.CANCELLED:
        return "not tried"
    if killed(trial):
        return "killed"
    return "survived" if trial.status is TrialStatus.HELD else "not judged"


def _kill_cell(text: str) -> Cell:
    if not text:
        return Cell(hidden("not named"), class_="mutant unnamed")
    mark = tag("span", MARKS[text], aria_hidden="true")
    return Cell([mark, " ", tag("span", text, class_="word")], class_=f"mutant {text.replace(' ', '-')}")


def _automatic(result: Result) -> str:
    if result.falsifier.kills or not result.mutants:
        return ""
    return f"{sum(map(killed, result.mutants))} of {len(result.mutants)} killed"


def _equations(result: Result) -> str:
    mutants = result.trial.equation_mutants if result.trial is not None else None
    return f"{mutants.killed} of {mutants.total} killed" if mutants is not None else ""


def _kill_list(rows: list[Result], mutants: Mapping[str, str]) -> Html:
    """Return a table with one row for every mutant and its falsifiers, in place of a matrix that is too large."""
    outcomes: dict[str, list[str]] = {id_: [] for id_ in mutants}
    for result in rows:
        trials = {trial.mutant: trial for trial in result.mutants}
        for id_ in result.falsifier.kills:
            outcomes.setdefault(id_, []).append(f"{result.falsifier.id}: {outcome_text(result, id_, trials.get(id_))}")
    lines = [[Cell(id_, head=True), Cell(mutants.get(id_, "")), Cell("; ".join(by))] for id_, by in outcomes.items()]
    return table("Faults and their falsifiers", named("mutant", "fault", "falsifiers"), lines)
