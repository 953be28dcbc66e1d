"""The section of one contract: verdict, failures, kill matrix, reference runs, all results with their evidence."""

from collections.abc import Iterator
from datetime import date
from itertools import groupby

from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.report import details, phrases, places
from pv.report.figures import is_of_script
from pv.report.html import charts, kills
from pv.report.html.markup import Cell, Html, join, named, table, tag
from pv.report.summary import sentence
from pv.results import gates
from pv.results.outcome import Result
from pv.results.trial import Recorded
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
    """Return a verdict or outcome as a symbol and a word: color alone tells nothing."""
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
    more = tag("p", f"The table has {count(rest, 'more failure')}.") if rest > 0 else None
    body = [
        None if blocks and is_of_script(verdict) else _gate(verdict),
        [_block(result, verdict) for result in blocks[:MAX_BLOCKS]],
        more,
        [tag("p", f"{reason}: {_names(results)}") for reason, results in phrases.unfounded(verdict)],
        kills.matrix(verdict),
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
    tried = engine_of(result.falsifier).effort(result.trial) if result.trial is not None else result.reason
    cells = (tried, result.falsifier.rule)
    return [Cell(badge(phrases.outcome(result))), Cell(result.falsifier.id, head=True), *map(Cell, cells)]


def _row(result: Result, verdict: ContractVerdict, report: Report) -> list[Cell]:
    kind = engine_of(result.falsifier)
    tried = kind.effort(result.trial) if result.trial is not None else result.reason
    missed = [tag("li", text) for text in details.survivors(result, verdict)]
    unseen = tag("ul", missed, aria_label="Equation mutants that survived") if missed else None
    return [
        Cell(badge(result.outcome.value)),
        Cell(result.falsifier.id, head=True),
        Cell(result.device),
        Cell(tried),
        Cell(" ".join(evidence(result, report))),
        Cell([result.falsifier.rule, unseen]),
    ]


def evidence(result: Result, report: Report) -> Iterator[str]:
    """Yield where and when the result was measured: now, or on the device and day of its record."""
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
    """Return how many days before the report a result was recorded; "" where a date is not one."""
    try:
        days = (date.fromisoformat(started[:10]) - date.fromisoformat(when)).days
    except ValueError:
        return ""
    return f" ({count(days, 'day')} before this report)" if days >= 0 else ""
