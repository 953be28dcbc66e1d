"""A comparison in each format: the matrix, then what refuted a subject, then what a subject does not claim."""

import json
from collections.abc import Iterator
from typing import Any

from pv.cells import Outcome
from pv.errors import UsageError
from pv.matrix import BROKEN, Column, Comparison
from pv.model import Falsifier
from pv.report import json_, words
from pv.report.markdown import code, escape, fenced
from pv.report.text import INDENT, plain

FORMATS = ("text", "json", "markdown")
FORMAT = "pv-comparison/1"
GAP = 2


def render(comparison: Comparison, form: str = "text", *, width: int = 100) -> str:
    """The comparison in one of FORMATS. Raises UsageError for another one."""
    match form:
        case "text":
            lines = _text(comparison, width)
        case "markdown":
            lines = _markdown(comparison)
        case "json":
            return json.dumps(data(comparison), indent=1, ensure_ascii=False) + "\n"
        case _:
            raise UsageError(f"there is no format {form!r}; the formats of a comparison are {', '.join(FORMATS)}")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace").decode("utf-8")


def data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as a JSON object; each column's report is that of `pv validate`."""
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
    for columns in _fitting(comparison, width):
        yield ""
        yield from _table(comparison.rows, columns)
    for column, cell in comparison.refuted():
        yield ""
        yield plain(f"{cell.outcome.value.upper():<10} {cell.falsifier.id} by {column.name}  {cell.falsifier.where}")
        for label, text in _said(column, cell.falsifier):
            yield f"  {label:<{INDENT - 2}}" + plain(text).replace("\n", "\n" + " " * INDENT)
    yield ""
    for column, why, ids in comparison.unclaimed():
        yield plain(f"not claimed by {column.name}: {', '.join(ids)}: {why}")
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
        cells = (_marked(column.outcome(falsifier)) for column in comparison.columns)
        yield f"| {code(falsifier.id)} {escape(falsifier.rule)} | " + " | ".join(cells) + " |"
    for column, cell in comparison.refuted():
        yield ""
        yield f"### {cell.outcome.value}: {code(cell.falsifier.id)} by {code(column.name)}"
        yield ""
        yield from fenced([f"{label:<10} {text}" for label, text in _said(column, cell.falsifier)])
    yield ""
    for column, why, ids in comparison.unclaimed():
        yield f"- not claimed by {code(column.name)}: {', '.join(map(code, ids))}: {escape(why)}"
    yield from (f"- {escape(str(finding))}" for finding in _findings(comparison))
    yield from (f"> {escape(note)}" for note in _notes(comparison))
    yield ""
    yield escape(_closing(comparison))


def _title(comparison: Comparison) -> str:
    contract = comparison.contract
    reports = [column.report for column in comparison.columns if column.report is not None]
    if not reports:
        return f"{contract.id} {contract.version}"
    first = reports[0]
    torch = [f"torch {info.torch}" for info in first.devices.values() if info.torch]
    tools = ", ".join([f"Python {first.python}", f"Hypothesis {first.hypothesis}", *torch])
    return f"{contract.id} {contract.version} on {first.started[:10]}: {tools}"


def _summary(column: Column) -> str:
    what = " ".join(filter(None, [column.package, "" if column.own or column.name == column.target else column.target]))
    what = "the contract's own subject" if column.own else what
    counts = [f"{column.count(outcome)} {outcome.value}" for outcome in Outcome if column.count(outcome)]
    known = f"undecided: {column.missing}" if column.missing else ", ".join(counts) or "undecided: nothing was run"
    return f"{what}: {known}" if what else known


def _fitting(comparison: Comparison, width: int) -> Iterator[list[Column]]:
    """The columns in groups that a line holds; at least one a line."""
    group: list[Column] = []
    used = start = max((len(f.id) for f in comparison.rows), default=0)
    for column in comparison.columns:
        if group and used + GAP + _width(column) > width:
            yield group
            group, used = [], start
        group.append(column)
        used += GAP + _width(column)
    yield group


def _width(column: Column) -> int:
    return max(len(column.name), *(len(outcome.value) for outcome in Outcome))


def _table(rows: tuple[Falsifier, ...], columns: list[Column]) -> Iterator[str]:
    first = max((len(f.id) for f in rows), default=0)
    gap = " " * GAP
    yield (" " * first + "".join(f"{gap}{column.name:<{_width(column)}}" for column in columns)).rstrip()
    for f in rows:
        cells = (f"{gap}{_shown(column.outcome(f)):<{_width(column)}}" for column in columns)
        yield (f"{f.id:<{first}}" + "".join(cells)).rstrip()


def _shown(outcome: Outcome) -> str:
    name: str = outcome.value
    return name.upper() if outcome in (Outcome.FALSIFIED, *BROKEN) else name


def _marked(outcome: Outcome) -> str:
    return f"**{outcome.value}**" if _shown(outcome).isupper() else outcome.value


def _said(column: Column, falsifier: Falsifier) -> Iterator[tuple[str, str]]:
    """What a report of `pv validate` would say of the cell."""
    if column.verdict is None or column.report is None:
        return
    cell = next(cell for cell in column.cells if cell.falsifier.id == falsifier.id)
    yield from words.lines(cell, column.verdict, column.report)


def _findings(comparison: Comparison) -> list[Any]:
    reports = (column.report for column in comparison.columns if column.report is not None)
    return list(dict.fromkeys(finding for report in reports for finding in words.loose_findings(report)))


def _notes(comparison: Comparison) -> list[str]:
    reports = (column.report for column in comparison.columns if column.report is not None)
    return list(dict.fromkeys(note for report in reports for note in report.notes))


def _closing(comparison: Comparison) -> str:
    reports = [column.report for column in comparison.columns if column.report is not None]
    seconds, seeds = sum(report.seconds for report in reports), {report.seed for report in reports}
    columns = words.count(len(comparison.columns), "subject")
    return f"{columns}, {seconds:.1f} s; seed {', '.join(map(str, seeds)) or 'none'}; exit {comparison.exit_code}"
