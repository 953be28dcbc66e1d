"""The falsifier report of a pull request."""

import html
import re

from pv.cells import Cell
from pv.report import words
from pv.verdict import ContractVerdict, Report

# A job summary is cut at 1 MiB; below that, a reader has long stopped.
MAX_BLOCKS = 50
MARKS = {"fail": "❌", "undecided": "⚠️", "pass": "✅"}


def render(report: Report) -> str:
    """Markdown: a table of contracts, worst first, a section for each thing to act on, and all cells folded away."""
    parts = ["## Falsifier report", ""]
    if report.contracts:
        parts += ["| | contract | verdict | evidence |", "|---|---|---|---|"]
    for verdict in report.contracts:
        status = verdict.status.value
        name = f"{code(verdict.contract.id)} {escape(verdict.contract.version)}"
        name += f" on {code(verdict.subject)}" if verdict.subject else ""
        parts.append(f"| {MARKS[status]} | {name} | **{status}** | {escape(words.summary(verdict))} |")
    parts.append("")
    parts += [f"- {escape(str(finding))}" for finding in words.loose_findings(report)]
    shown = [(cell, verdict) for verdict in report.contracts for cell in words.blocks(verdict)]
    for cell, verdict in shown[:MAX_BLOCKS]:
        parts += ["", *_block(cell, verdict, report)]
    if len(shown) > MAX_BLOCKS:
        parts += ["", f"{len(shown) - MAX_BLOCKS} more are in the full report."]
    for verdict in report.contracts:
        for cell, said in words.close_to_their_limit(verdict):
            parts += ["", f"**proved**: {code(cell.falsifier.id)}: {escape(said)}"]
        for reason, cells in words.undecided(verdict).items():
            names = ", ".join(code(cell.falsifier.id) for cell in cells)
            parts += ["", f"**undecided**: {names}: {escape(reason)}"]
        parts += ["", *_table(verdict)] if verdict.cells else []
    parts += ["", *(f"> {escape(note)}" for note in words.notes(report)), escape(words.closing(report)), ""]
    return "\n".join(parts)


def _block(cell: Cell, verdict: ContractVerdict, report: Report) -> list[str]:
    parts = [
        f"### {cell.outcome.value}: {code(cell.falsifier.id)} on {cell.device}",
        "",
        escape(str(cell.falsifier.where)),
        "",
    ]
    return [*parts, *fenced([f"{label:<10} {text}" for label, text in words.lines(cell, verdict, report)])]


def fenced(lines: list[str]) -> list[str]:
    """The lines as a block of code, in a fence longer than any in them."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *lines, fence]


def _table(verdict: ContractVerdict) -> list[str]:
    cells = verdict.cells
    parts = [f"<details><summary>{html.escape(verdict.contract.id)}: {words.count(len(cells), 'cell')}</summary>", ""]
    parts += ["| falsifier | device | outcome | tried | claim |", "|---|---|---|---|---|"]
    for cell in cells:
        tried = words.effort(cell, cell.trial) if cell.trial is not None else escape(cell.reason)
        rule = escape(cell.falsifier.rule)
        parts.append(f"| {code(cell.falsifier.id)} | {cell.device} | {cell.outcome.value} | {tried} | {rule} |")
    for cell in cells:
        unseen = [f"- {escape(text)}" for text in words.survivors(cell, verdict)]
        if unseen:
            parts += ["", f"Changes of its equation that {code(cell.falsifier.id)} did not tell apart:", "", *unseen]
    return [*parts, "", "</details>"]


def escape(text: str) -> str:
    for character in "\\`*_<>|[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def code(name: str) -> str:
    """A name in code font; one that would end it, or the table's cell, is escaped instead."""
    return escape(name) if set(name) & set("`|\n\r") else f"`{name}`"
