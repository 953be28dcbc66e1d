"""The report as Markdown, for a comment on a pull request."""

import html
import re
from collections.abc import Iterable, Iterator

from pv.contract.wording import count, cut, listed
from pv.engines.registry import engine_of
from pv.report import View, details, phrases
from pv.report.contract_line import sentence
from pv.results import steps
from pv.results.evidence import UNFINISHED
from pv.results.outcome import Result
from pv.results.saved.changes import BaseComparison
from pv.results.steps import ObservedStep
from pv.results.verdict import ContractVerdict, Report

MAX_BLOCKS, MAX_CHANGES, MAX_NAMES, MAX_STEPS = 50, 100, 50, 50
MAX_CHARACTERS = 300
"""Largest number of characters of an error or an input in the short form of a failure."""
REMARK_BYTES = 120
"""Number of bytes that are reserved for the remark about omitted parts."""
MARKS = {"fail": "❌", "undecided": "⚠️", "pass": "✅"}


def render(report: Report, view: View) -> str:
    """Return Markdown: a table of contracts, worst first, sections of failures, and collapsed tables.

    Failures of a contract with the same exception share a section. At most `MAX_BLOCKS` sections are shown. Parts that
    do not fit into `view.max_bytes` are left out and counted.
    """
    end = ["", *(f"> {escape(note)}" for note in phrases.notes(report)), escape(phrases.closing_line(report, view)), ""]
    max_bytes = view.max_bytes - _size(end) - REMARK_BYTES
    return "\n".join([*_fit(_parts(report, view), max_bytes), *end])


def _parts(report: Report, view: View) -> Iterator[list[str]]:
    """Yield the parts of the report, a part as its lines. A part is shown completely or not at all."""
    yield [f"## {phrases.report_title(report)}", ""]
    finished = [verdict for verdict in report.contracts if not phrases.is_unfinished(verdict)]
    if finished:
        yield ["| | contract | verdict | evidence |", "|---|---|---|---|"]
    for verdict in finished:
        yield [_row(verdict)]
    yield [""]
    for reason, verdicts in phrases.group_unfinished(report):
        text = escape(phrases.unfinished_sentence(reason, verdicts))
        yield [f"**undecided**: {text}. The JSON report lists them.", ""]
    if view.compared is not None:
        yield _changes(view.compared)
    for finding in phrases.refusals_and_errors(report):
        yield [f"- {escape(str(finding))}"]
    failures = [
        (group, verdict)
        for verdict in report.contracts
        for group in phrases.group_by_exception(phrases.detailed_results(verdict))
    ]
    for (first, *same_exception), verdict in failures[:MAX_BLOCKS]:
        lines = ["", *_block(first, verdict, view)]
        if same_exception:
            exception = f"the exception of {code(first.falsifier.id)}"
            lines += ["", f"**{first.outcome.value}**: {_names(same_exception)}: {exception}"]
        yield lines
    if len(failures) > MAX_BLOCKS:
        yield ["", f"The full report shows {count(len(failures) - MAX_BLOCKS, 'more failure')}."]
    for title, rows in steps.groups(report.steps):
        yield ["", *_steps(title, rows)]
    for verdict in finished:
        yield from _remarks(verdict)
        if verdict.results:
            yield ["", *_table(verdict)]


def _row(verdict: ContractVerdict) -> str:
    status = verdict.status.value
    name = f"{code(verdict.contract.id)} {escape(verdict.contract.version)}"
    name += f" on {code(verdict.subject)}" if verdict.subject else ""
    return f"| {MARKS[status]} | {name} | **{status}** | {escape(sentence(verdict))} |"


def _changes(compared: BaseComparison) -> list[str]:
    """Return the section of the differences from the base, so that a weaker contract is as visible as a failure."""
    changes = compared.changes
    lines = ["### Compared with the base", ""]
    head = ["| change | contract | claim or mutant | at | |", "|---|---|---|---|---|"]
    lines += head if changes else ["No difference."]
    for change in changes[:MAX_CHANGES]:
        claim, place = (code(text) if text else "" for text in (change.claim, change.place))
        cells = (f"**{change.kind.value}**", code(change.contract), claim, place, escape(change.text))
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    if len(changes) > MAX_CHANGES:
        lines += [f"{count(len(changes) - MAX_CHANGES, 'more change')}.", ""]
    notes = (*compared.notes, phrases.weakening_text(compared))
    return [*lines, *(f"> {escape(note)}" for note in notes if note), ""]


def _remarks(verdict: ContractVerdict) -> Iterator[list[str]]:
    for result, reason in phrases.proofs_near_limit(verdict):
        yield ["", f"**proved**: {code(result.falsifier.id)}: {escape(reason)}"]
    for reason, results in phrases.group_by_premise(verdict):
        yield ["", f"**vacuous**: {escape(reason)}: {_names(results)}"]
    for reason, results in phrases.group_undecided(verdict).items():
        if reason not in UNFINISHED:  # one line for all contracts
            yield ["", f"**undecided**: {_names(results)}: {escape(reason)}"]


def _names(results: list[Result]) -> str:
    return listed([code(result.falsifier.id) for result in results], MAX_NAMES)


def _fit(parts: Iterable[list[str]], max_bytes: int) -> list[str]:
    """Return the lines of the parts that fit, and a remark that counts the omitted parts."""
    lines: list[str] = []
    left_out = 0
    for part in parts:
        size = _size(part)
        if size > max_bytes:
            left_out += 1
            continue  # a smaller part after this one may still fit
        max_bytes -= size
        lines += part
    remark = f"Left out because of the size limit: {count(left_out, 'part')}. The JSON report has all parts."
    return [*lines, "", remark] if left_out else lines


def _size(lines: list[str]) -> int:
    return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in lines)


def _block(result: Result, verdict: ContractVerdict, view: View) -> list[str]:
    """Return the section of a failure: its locations, the short form, and the collapsed details."""
    locations = []
    if (place := details.code_location(result, view)) is not None:
        locations.append(code(f"{place.path}:{place.line}"))
    if claim := details.claim_location(result):
        locations.append(f"claim at {escape(claim)}")
    lines = list(details.lines(result, verdict))
    return [
        f"### {result.outcome.value}: {code(result.falsifier.id)}{phrases.on_device(result)}",
        "",
        ", ".join(locations),
        "",
        *(f"- **{label}**: {text}" for label, text in _short_form(result, lines)),
        "",
        "<details><summary>Details</summary>",
        "",
        *fenced([f"{label:<10} {text}" for label, text in lines]),
        "",
        "</details>",
    ]


def _short_form(result: Result, lines: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the short form of a failure, as labels and texts: the error, the input, the command that replays it.

    For a claim about a script: the claim, the observed value, the right value, and the command.
    """
    texts: dict[str, str] = {}
    for label, text in lines:
        texts.setdefault(label, text)
    if result.falsifier.is_of_script:
        for label in ("claim", "seen", "right"):
            if label in texts:
                yield label, escape(texts[label])
        yield "rerun", verbatim(texts["rerun"])
        return
    yield "broke", escape(_cut(texts.get("seen") or result.reason or result.falsifier.rule))
    if inputs := "; ".join(text for label, text in lines if label == "with"):
        trial = result.trial
        shrunk = trial is not None and trial.counterexample is not None and trial.counterexample.shrunk
        yield "smallest input" if shrunk else "input", verbatim(_cut(inputs))
    if command := texts.get("replay") or texts.get("rerun"):
        yield "replay", verbatim(command)


def _cut(text: str) -> str:
    """Return the text in one line, shortened if it is long."""
    return cut(" ".join(text.split()), MAX_CHARACTERS)


def verbatim(text: str) -> str:
    """Return a text in code font in one line, unescaped so that it can be copied."""
    line = text.replace("\r", " ").replace("\n", " ")
    fence = _fence(line, 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def fenced(lines: list[str]) -> list[str]:
    """Return the lines as a code block; its fence is longer than any run of backticks in the lines."""
    fence = _fence("\n".join(lines), 3)
    return [f"{fence}text", *lines, fence]


def _fence(text: str, minimum: int) -> str:
    """Return at least `minimum` backticks, and more than any run of backticks in the text (CommonMark, 4.5 and 6.1)."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(minimum, longest + 1)


def _table(verdict: ContractVerdict) -> list[str]:
    results = verdict.results
    title = f"{html.escape(verdict.contract.id)}: {count(len(results), 'result')}"
    lines = [f"<details><summary>{title}</summary>", ""]
    of_script = all(result.falsifier.is_of_script for result in results)
    heads = ("claim", "result", "tried", "rule") if of_script else ("falsifier", "device", "outcome", "tried", "claim")
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for result in results:
        effort = engine_of(result.falsifier).effort(result.trial) if result.trial is not None else escape(result.reason)
        device = [] if of_script else [result.device]
        claim, outcome = result.falsifier, phrases.outcome_text(result)
        cells = [code(claim.id), *device, outcome, effort, escape(claim.rule)]
        lines.append(f"| {' | '.join(cells)} |")
    for result in results:
        survivors = [f"- {escape(text)}" for text in details.survivors(result, verdict)]
        if survivors:
            lines += ["", f"Equation mutants that survived {code(result.falsifier.id)}:", "", *survivors]
    return [*lines, "", "</details>"]


def _steps(title: str, rows: list[ObservedStep]) -> list[str]:
    """Return a collapsed table of the first steps of an optimizer."""
    lines = [f"<details><summary>{html.escape(title)}: {len(rows)}</summary>", ""]
    lines += [f"| {' | '.join(steps.COLUMNS)} |", "|" + "---:|" * len(steps.COLUMNS)]
    lines += [f"| {' | '.join(steps.cells(row))} |" for row in rows[:MAX_STEPS]]
    if remark := steps.remaining_steps(rows, MAX_STEPS):
        lines += ["", f"... {remark}"]
    return [*lines, "", "</details>"]


def escape(text: str) -> str:
    r"""Return the text in one line, with the characters \\`*_<>|[] escaped by a backslash."""
    for character in "\\`*_<>|[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def code(name: str) -> str:
    """Return a name in code font; if it contains a backtick, a cell delimiter or a line end, escape it instead."""
    return escape(name) if set(name) & set("`|\n\r") else f"`{name}`"
