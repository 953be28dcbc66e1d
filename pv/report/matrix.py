"""The formats of `pv compare`: a matrix of outcomes, counterexamples, and claims that a subject does not make."""

import json
from collections.abc import Iterator

from pv.contract.finding import Finding
from pv.contract.model import Falsifier
from pv.contract.wording import count
from pv.errors import UsageError
from pv.report import COMPARISON_FORMATS, details, json_, phrases, writable
from pv.report.markdown import code, escape, fenced
from pv.report.text import INDENT
from pv.report.wrapping import plain
from pv.results.comparison import Column, Comparison
from pv.results.outcome import Outcome
from pv.results.verdict import FAILING

FORMAT = "pv-comparison/1"
GAP = 2
"""Number of spaces between two columns of the table."""


def render(comparison: Comparison, form: str = "text", *, width: int = 100) -> str:
    """Return the comparison in one of COMPARISON_FORMATS. Raise `UsageError` for an unknown format."""
    match form:
        case "text":
            lines = _text(comparison, width)
        case "markdown":
            lines = _markdown(comparison)
        case "json":
            lines = iter([json.dumps(data(comparison), indent=1, ensure_ascii=False)])
        case _:
            raise UsageError(f"unknown format {form!r} (choose from {', '.join(COMPARISON_FORMATS)})")
    return writable("\n".join(lines) + "\n")


def data(comparison: Comparison) -> dict[str, object]:
    """Return the comparison as a JSON object; the report of a column has the format of `pv validate`."""
    return {
        "format": FORMAT,
        "exit_code": comparison.exit_code,
        "contract": comparison.contract.id,
        "version": comparison.contract.version,
        "claims": [falsifier.id for falsifier in comparison.rows],
        "columns": [
            {
                "name": column.name,
                "target": column.target,
                "own": column.own,
                "package": column.package,
                "missing": column.missing,
                "outcomes": {f.id: column.outcome(f).value for f in comparison.rows},
                "report": json_.data(column.report) if column.report is not None else None,
            }
            for column in comparison.columns
        ],
    }


def _text(comparison: Comparison, width: int) -> Iterator[str]:
    yield _title(comparison)
    for column in comparison.columns:
        yield plain(f"  {column.name}: {_summary(column)}")
    for columns in _column_groups(comparison, width):
        yield ""
        yield from _table(comparison.rows, columns)
    for column, result in comparison.failures():
        yield ""
        heading = f"{result.outcome.value.upper():<10} {result.falsifier.id} by {column.name}"
        yield plain(f"{heading}  {details.claim_location(result)}".rstrip())
        for label, text in _detail_lines(column, result.falsifier):
            yield f"  {label:<{INDENT - 2}}" + plain(text).replace("\n", "\n" + " " * INDENT)
    yield ""
    for column, reason, ids in _not_claimed(comparison):
        yield plain(f"not claimed by {column.name}: {', '.join(ids)}: {reason}")
    yield from (plain(f"{finding.severity.value}: {finding}") for finding in _findings(comparison))
    yield from (plain(f"note: {note}") for note in _notes(comparison))
    yield _closing(comparison)


def _markdown(comparison: Comparison) -> Iterator[str]:
    yield f"## {escape(_title(comparison))}"
    yield ""
    yield from (f"- {code(column.name)}: {escape(_summary(column))}" for column in comparison.columns)
    yield ""
    yield "| claim | " + " | ".join(code(column.name) for column in comparison.columns) + " |"
    yield "|---" * (len(comparison.columns) + 1) + "|"
    for falsifier in comparison.rows:
        outcomes = (column.outcome(falsifier) for column in comparison.columns)
        cells = (f"**{outcome.value}**" if outcome in FAILING else outcome.value for outcome in outcomes)
        yield f"| {code(falsifier.id)} {escape(falsifier.rule)} | " + " | ".join(cells) + " |"
    for column, result in comparison.failures():
        yield ""
        yield f"### {result.outcome.value}: {code(result.falsifier.id)} by {code(column.name)}"
        yield ""
        yield from fenced([f"{label:<10} {text}" for label, text in _detail_lines(column, result.falsifier)])
    yield ""
    for column, reason, ids in _not_claimed(comparison):
        yield f"- not claimed by {code(column.name)}: {', '.join(map(code, ids))}: {escape(reason)}"
    yield from (f"- {escape(str(finding))}" for finding in _findings(comparison))
    yield from (f"> {escape(note)}" for note in _notes(comparison))
    yield ""
    yield escape(_closing(comparison))


def _title(comparison: Comparison) -> str:
    """Return the contract, the date of the comparison, and the versions of the tools."""
    contract = comparison.contract
    if not comparison.reports:
        return f"{contract.id} {contract.version}"
    first = comparison.reports[0]
    torch = dict.fromkeys(f"torch {info.torch}" for info in first.devices.values() if info.torch)
    tools = ", ".join([f"Python {first.python}", f"Hypothesis {first.hypothesis}", *torch])
    return f"{contract.id} {contract.version} on {first.started[:10]}: {tools}"


def _summary(column: Column) -> str:
    """Return the distribution, the target and the number of results by outcome of a column as text."""
    counts = [f"{column.count(outcome)} {outcome.value}" for outcome in Outcome if column.count(outcome)]
    figures = f"undecided: {column.missing}" if column.missing else ", ".join(counts) or "undecided: nothing was run"
    if column.own:
        return f"the contract's own subject: {figures}"
    target = "" if column.name == column.target else column.target
    return ": ".join(filter(None, [" ".join(filter(None, [column.package, target])), figures]))


def _column_groups(comparison: Comparison, width: int) -> Iterator[list[Column]]:
    """Yield groups of columns that fit into the width; a group has at least one column."""
    group: list[Column] = []
    used = id_width = max((len(f.id) for f in comparison.rows), default=0)
    for column in comparison.columns:
        if group and used + GAP + _width(column) > width:
            yield group
            group, used = [], id_width
        group.append(column)
        used += GAP + _width(column)
    yield group


def _width(column: Column) -> int:
    return max(len(column.name), *(len(outcome.value) for outcome in Outcome))


def _table(rows: tuple[Falsifier, ...], columns: list[Column]) -> Iterator[str]:
    id_width = max((len(claim.id) for claim in rows), default=0)
    gap = " " * GAP
    yield (" " * id_width + "".join(f"{gap}{column.name:<{_width(column)}}" for column in columns)).rstrip()
    for claim in rows:
        outcomes = [column.outcome(claim) for column in columns]
        words = [outcome.value.upper() if outcome in FAILING else outcome.value for outcome in outcomes]
        cells = (f"{gap}{word:<{_width(column)}}" for word, column in zip(words, columns, strict=True))
        yield (f"{claim.id:<{id_width}}" + "".join(cells)).rstrip()


def _detail_lines(column: Column, falsifier: Falsifier) -> Iterator[tuple[str, str]]:
    """Yield the details of a result as a report of `pv validate` shows them."""
    if column.verdict is None:
        return
    result = next(result for result in column.results if result.falsifier.id == falsifier.id)
    yield from details.lines(result, column.verdict)


def _not_claimed(comparison: Comparison) -> Iterator[tuple[Column, str, list[str]]]:
    """Yield a column, a reason, and the ids of the claims that the subject does not make for this reason."""
    for column in comparison.columns:
        groups = phrases.group_not_claimed(column.verdict) if column.verdict is not None else {}
        yield from ((column, reason, [result.falsifier.id for result in group]) for reason, group in groups.items())


def _findings(comparison: Comparison) -> list[Finding]:
    findings = (finding for report in comparison.reports for finding in phrases.refusals_and_errors(report))
    return list(dict.fromkeys(findings))


def _notes(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(note for report in comparison.reports for note in report.notes))


def _closing(comparison: Comparison) -> str:
    reports = comparison.reports
    seconds, seeds = sum(report.seconds for report in reports), {report.seed for report in reports}
    columns = count(len(comparison.columns), "subject")
    return f"{columns}, {seconds:.1f} s; seed {', '.join(map(str, seeds)) or 'none'}; exit {comparison.exit_code}"
