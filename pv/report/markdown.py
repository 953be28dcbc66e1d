"""The falsifier report of a pull request."""

import html
import re

from pv.engines.kinds import kind_of
from pv.report import View, details, phrases
from pv.report.figures import count
from pv.report.summary import sentence
from pv.results.outcome import Result
from pv.results.verdict import ContractVerdict, Report

# GitHub truncates a job summary at 1 MiB; this many blocks stay far below.
MAX_BLOCKS = 50
MARKS = {"fail": "❌", "undecided": "⚠️", "pass": "✅"}


def render(report: Report, view: View) -> str:
    """Return Markdown: a table of contracts, worst first, a section for each failure, and all results folded."""
    parts = ["## Falsifier report", ""]
    if report.contracts:
        parts += ["| | contract | verdict | evidence |", "|---|---|---|---|"]
    for verdict in report.contracts:
        status = verdict.status.value
        name = f"{code(verdict.contract.id)} {escape(verdict.contract.version)}"
        name += f" on {code(verdict.subject)}" if verdict.subject else ""
        parts.append(f"| {MARKS[status]} | {name} | **{status}** | {escape(sentence(verdict))} |")
    parts.append("")
    parts += [f"- {escape(str(finding))}" for finding in phrases.refusals_and_errors(report)]
    shown = [(result, verdict) for verdict in report.contracts for result in phrases.blocks(verdict)]
    for result, verdict in shown[:MAX_BLOCKS]:
        parts += ["", *_block(result, verdict)]
    if len(shown) > MAX_BLOCKS:
        parts += ["", f"{len(shown) - MAX_BLOCKS} more are in the full report."]
    for verdict in report.contracts:
        for result, said in phrases.close_to_their_limit(verdict):
            parts += ["", f"**proved**: {code(result.falsifier.id)}: {escape(said)}"]
        for reason, results in phrases.undecided(verdict).items():
            names = ", ".join(code(result.falsifier.id) for result in results)
            parts += ["", f"**undecided**: {names}: {escape(reason)}"]
        parts += ["", *_table(verdict)] if verdict.results else []
    parts += ["", *(f"> {escape(note)}" for note in phrases.notes(report)), escape(phrases.closing(report)), ""]
    return "\n".join(parts)


def _block(result: Result, verdict: ContractVerdict) -> list[str]:
    parts = [
        f"### {result.outcome.value}: {code(result.falsifier.id)} on {result.device}",
        "",
        escape(str(result.falsifier.location)),
        "",
    ]
    return [*parts, *fenced([f"{label:<10} {text}" for label, text in details.lines(result, verdict)])]


def fenced(lines: list[str]) -> list[str]:
    """Return the lines as a code block, in a fence longer than any in them."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *lines, fence]


def _table(verdict: ContractVerdict) -> list[str]:
    results = verdict.results
    parts = [
        f"<details><summary>{html.escape(verdict.contract.id)}: {count(len(results), 'result')}</summary>",
        "",
    ]
    parts += ["| falsifier | device | outcome | tried | claim |", "|---|---|---|---|---|"]
    for result in results:
        tried = kind_of(result.falsifier).effort(result.trial) if result.trial is not None else escape(result.reason)
        rule = escape(result.falsifier.rule)
        parts.append(f"| {code(result.falsifier.id)} | {result.device} | {result.outcome.value} | {tried} | {rule} |")
    for result in results:
        unseen = [f"- {escape(text)}" for text in details.survivors(result, verdict)]
        if unseen:
            parts += ["", f"Equation mutants that survived {code(result.falsifier.id)}:", "", *unseen]
    return [*parts, "", "</details>"]


def escape(text: str) -> str:
    """Return the text in one line, without effect as Markdown."""
    for character in "\\`*_<>|[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def code(name: str) -> str:
    """Return a name in code font, or escaped where it would end that font or the table cell."""
    return escape(name) if set(name) & set("`|\n\r") else f"`{name}`"
