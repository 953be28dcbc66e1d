"""The falsifier report of a pull request."""

import html
import re
from collections.abc import Iterator

from pv.contract.wording import count, cut, listed
from pv.engines.registry import engine_of
from pv.report import View, details, phrases
from pv.report.summary import sentence
from pv.results import steps
from pv.results.outcome import Result
from pv.results.saved.changes import BaseComparison
from pv.results.steps import ObservedStep
from pv.results.trial import UNFINISHED
from pv.results.verdict import ContractVerdict, Report

MAX_BLOCKS, MAX_CHANGES, MAX_NAMES, MAX_SHORT, MAX_STEPS = 50, 100, 50, 300, 50
RESERVE = 120
"""Bytes that are kept free for the remark about omitted parts."""
MARKS = {"fail": "❌", "undecided": "⚠️", "pass": "✅"}


def render(report: Report, view: View) -> str:
    """Return Markdown: a table of contracts, worst first, a section for every failure, and folded tables.

    Parts that do not fit into `view.max_bytes` are left out and counted.
    """
    end = ["", *(f"> {escape(note)}" for note in phrases.notes(report)), escape(phrases.closing(report, view)), ""]
    return "\n".join([*_fitting(list(_parts(report, view)), view.max_bytes - _size(end) - RESERVE), *end])


def _parts(report: Report, view: View) -> Iterator[list[str]]:
    """Yield the parts of the report; a part is shown completely or not at all."""
    yield [f"## {phrases.title_of(report)}", ""]
    judged = [verdict for verdict in report.contracts if not phrases.is_unjudged(verdict)]
    if judged:
        yield ["| | contract | verdict | evidence |", "|---|---|---|---|"]
    yield from ([_row(verdict)] for verdict in judged)
    yield [""]
    for reason, verdicts in phrases.unfinished_claims(report):
        yield [
            f"**undecided**: {escape(phrases.unfinished_sentence(reason, verdicts))}. The JSON report lists them.",
            "",
        ]
    if view.compared is not None:
        yield _changes(view.compared)
    yield from ([f"- {escape(str(finding))}"] for finding in phrases.refusals_and_errors(report))
    shown = [(group, verdict) for verdict in report.contracts for group in phrases.repeated(phrases.blocks(verdict))]
    for (first, *same_exception), verdict in shown[:MAX_BLOCKS]:
        same = f"**{first.outcome.value}**: {_names(same_exception)}: the exception of {code(first.falsifier.id)}"
        yield ["", *_block(first, verdict, view), *(["", same] if same_exception else [])]
    if len(shown) > MAX_BLOCKS:
        yield ["", f"The full report shows {len(shown) - MAX_BLOCKS} more."]
    for title, rows in steps.groups(report.steps):
        yield ["", *_steps(title, rows)]
    for verdict in judged:
        yield from _remarks(verdict)
        if verdict.results:
            yield ["", *_table(verdict)]


def _row(verdict: ContractVerdict) -> str:
    status = verdict.status.value
    name = f"{code(verdict.contract.id)} {escape(verdict.contract.version)}"
    name += f" on {code(verdict.subject)}" if verdict.subject else ""
    return f"| {MARKS[status]} | {name} | **{status}** | {escape(sentence(verdict))} |"


def _changes(compared: BaseComparison) -> list[str]:
    """Return the section of the differences from the base: a weaker contract is as visible as a failure."""
    changes = compared.changes
    notes = [f"> {escape(note)}" for note in (*compared.notes, phrases.weakened(compared)) if note]
    rows = [
        f"| **{change.kind.value}** | {code(change.contract)} | {code(change.claim) if change.claim else ''} |"
        f" {code(change.place) if change.place else ''} | {escape(change.text)} |"
        for change in changes[:MAX_CHANGES]
    ]
    if not changes:
        return ["### Compared with the base", "", "No difference.", "", *notes, ""]
    remark = [f"{count(len(changes) - MAX_CHANGES, 'more change')}.", ""] if len(changes) > MAX_CHANGES else []
    head = ["### Compared with the base", "", "| change | contract | claim or mutant | at | |", "|---|---|---|---|---|"]
    return [*head, *rows, "", *remark, *notes, ""]


def _remarks(verdict: ContractVerdict) -> Iterator[list[str]]:
    for result, reason in phrases.close_to_their_limit(verdict):
        yield ["", f"**proved**: {code(result.falsifier.id)}: {escape(reason)}"]
    for reason, results in phrases.unfounded(verdict):
        yield ["", f"**vacuous**: {escape(reason)}: {_names(results)}"]
    for reason, results in phrases.undecided(verdict).items():
        if reason not in UNFINISHED:  # one line for all contracts
            yield ["", f"**undecided**: {_names(results)}: {escape(reason)}"]


def _names(results: list[Result]) -> str:
    return listed([code(result.falsifier.id) for result in results], MAX_NAMES)


def _fitting(parts: list[list[str]], max_bytes: int) -> list[str]:
    """Return the lines of the parts that fit, and a remark that counts the others."""
    # A large part is skipped, but smaller parts after it may still fit.
    lines: list[str] = []
    left_out = 0
    for part in parts:
        size = _size(part)
        if size > max_bytes:
            left_out += 1
            continue
        max_bytes -= size
        lines += part
    remark = f"Left out, since this report has a size limit: {count(left_out, 'part')}. The JSON report has all."
    return [*lines, "", remark] if left_out else lines


def _size(lines: list[str]) -> int:
    return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in lines)


def _block(result: Result, verdict: ContractVerdict, view: View) -> list[str]:
    place = details.code_location(result, view)
    at = [code(f"{place.path}:{place.line}")] if place is not None else []
    parts = [
        f"### {result.outcome.value}: {code(result.falsifier.id)}{phrases.on_device(result)}",
        "",
        ", ".join([*at, *([f"claim at {escape(claim)}"] if (claim := details.claim_location(result)) else [])]),
        "",
        *(f"- **{label}**: {text}" for label, text in _short(result, verdict)),
        "",
        "<details><summary>Details</summary>",
        "",
    ]
    lines = [f"{label:<10} {text}" for label, text in details.lines(result, verdict)]
    return [*parts, *fenced(lines), "", "</details>"]


def _short(result: Result, verdict: ContractVerdict) -> Iterator[tuple[str, str]]:
    """Yield the failure, the smallest input and the command that replays it, one line for each."""
    texts = dict(reversed([*details.lines(result, verdict)]))
    if result.falsifier.is_of_script:
        yield from ((label, escape(texts[label])) for label in ("claim", "seen", "right") if label in texts)
        yield "rerun", verbatim(texts["rerun"])
        return
    inputs = "; ".join(text for label, text in details.lines(result, verdict) if label == "with")
    yield "broke", escape(_cut(texts.get("seen") or result.reason or result.falsifier.rule))
    if inputs:
        trial = result.trial
        shrunk = trial is not None and trial.counterexample is not None and trial.counterexample.shrunk
        yield "smallest input" if shrunk else "input", verbatim(_cut(inputs))
    if command := texts.get("replay") or texts.get("rerun"):
        yield "replay", verbatim(command)


def _cut(text: str) -> str:
    return cut(" ".join(text.split()), MAX_SHORT)


def verbatim(text: str) -> str:
    """Return a text in code font in one line, unescaped so that it can be copied."""
    # The fence must be longer than any run of backticks in the text (CommonMark, section 6.1).
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    line = text.replace("\r", " ").replace("\n", " ")
    return f"{fence} {line} {fence}" if longest else f"`{line}`"


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
    of_script = all(result.falsifier.is_of_script for result in results)
    heads = ("claim", "result", "tried", "rule") if of_script else ("falsifier", "device", "outcome", "tried", "claim")
    parts += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for result in results:
        effort = engine_of(result.falsifier).effort(result.trial) if result.trial is not None else escape(result.reason)
        device = [] if of_script else [result.device]
        cells = [code(result.falsifier.id), *device, phrases.outcome(result), effort, escape(result.falsifier.rule)]
        parts.append(f"| {' | '.join(cells)} |")
    for result in results:
        unseen = [f"- {escape(text)}" for text in details.survivors(result, verdict)]
        if unseen:
            parts += ["", f"Equation mutants that survived {code(result.falsifier.id)}:", "", *unseen]
    return [*parts, "", "</details>"]


def _steps(title: str, rows: list[ObservedStep]) -> list[str]:
    """Return a folded table of the first steps of an optimizer."""
    head = [f"<details><summary>{html.escape(title)}: {len(rows)}</summary>", ""]
    table = [f"| {' | '.join(cells)} |" for cells in (steps.COLUMNS, *map(steps.cells, rows[:MAX_STEPS]))]
    left = steps.remaining_steps(rows, MAX_STEPS)
    remark = ["", f"... {left}"] if left else []
    return [*head, table[0], "|" + "---:|" * len(steps.COLUMNS), *table[1:], *remark, "", "</details>"]


def escape(text: str) -> str:
    """Return the text in one line, without effect as Markdown."""
    for character in "\\`*_<>|[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def code(name: str) -> str:
    """Return a name in code font; escaped instead if it contains a backtick, a cell delimiter or a line end."""
    return escape(name) if set(name) & set("`|\n\r") else f"`{name}`"
