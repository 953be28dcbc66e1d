"""The report for a terminal or a log: one line for every contract, worst first, then a block for every failure."""

from collections.abc import Iterator
from io import StringIO
from itertools import dropwhile

from rich.console import Console
from rich.text import Text

from pv.contract.wording import MAX_NAMES, listed
from pv.report import View, details, phrases
from pv.report.contract_line import contract_lines, sentence
from pv.report.wrapping import plain, wrap_styled
from pv.results.evidence import UNFINISHED
from pv.results.outcome import Result
from pv.results.saved.changes import BaseComparison
from pv.results.verdict import ContractVerdict, Report

STYLES = {
    "fail": "bold red",
    "falsified": "bold red",
    "error": "bold red",
    "vacuous": "bold magenta",
    "undecided": "yellow",
    "not claimed": "dim",
    "not reached": "dim",
    "pass": "bold green",
    "held": "green",
    "proved": "green",
}
INDENT = 12
"""Width of the labels of a failure, in columns."""
MAX_BLOCKS = 20
"""Maximum number of failures of a contract shown in detail, so that the first one is easy to find.

Failures with the same exception count as one.
"""


def render(report: Report, view: View) -> str:
    """Return the report as text, wrapped and colored if `view.color` is set."""
    out = StringIO()
    console = Console(
        file=out,
        width=view.width,
        force_terminal=view.color,
        no_color=not view.color,
        highlight=False,
        soft_wrap=True,
    )
    # Every block begins with an empty line: drop this line at the start of the report.
    for line in dropwhile(lambda line: not line, _lines(report, view)):
        for part in wrap_styled(line, console, INDENT) if view.color else [line]:
            console.print(part)
    return out.getvalue()


def _lines(report: Report, view: View) -> Iterator[Text]:
    """Yield the lines of the report; a line may have line feeds."""
    yield from _contracts(report, view)
    for finding in phrases.refusals_and_errors(report):
        yield _labelled(finding.severity.value, STYLES["error"], plain(str(finding)))
    for verdict in report.contracts:
        yield from _failures(verdict, view.verbose)
        for result, remark in phrases.few_examples(verdict):
            yield from _result_line("held", [result], remark)
        if view.verbose:
            for result, remark in phrases.proofs_near_limit(verdict):
                yield from _result_line("proved", [result], remark)
            for reason, results in phrases.group_not_claimed(verdict).items():
                yield from _result_line(phrases.outcome_text(results[0]), results, reason, len(results))
    yield from _not_run(report, view.verbose)
    if report.contracts:
        yield Text()
    if view.compared is not None:
        yield from _changes(view.compared)
    notes = phrases.notes(report) if view.verbose else report.notes
    yield from (Text(plain(f"note: {note}")) for note in notes)
    yield Text(phrases.closing_line(report, view))


def _changes(compared: BaseComparison) -> Iterator[Text]:
    """Yield the differences from the base with their locations, the notes, and why the comparison fails."""
    for change in compared.changes:
        name = " ".join(text for text in (change.contract, change.claim, change.place) if text)
        style = STYLES["fail" if change in compared.failing else "undecided"]
        yield _labelled(change.kind.value.upper(), style, plain(f"{name}: {change.text}"))
    yield from (Text(plain(f"note: {note}")) for note in compared.notes)
    if compared.failing:
        yield Text(phrases.weakening_text(compared))
    yield Text()


def _contracts(report: Report, view: View) -> Iterator[Text]:
    """Yield a line in columns for every contract; with `view.verbose`, also a sentence with all its figures.

    Without `view.verbose`, contracts that were not tried because the validation ended early are left out.
    """
    verdicts = [verdict for verdict in report.contracts if view.verbose or not phrases.is_unfinished(verdict)]
    status_width = max((len(verdict.status.value) for verdict in verdicts), default=0)
    name_width = max((len(plain(phrases.contract_name(verdict))) for verdict in verdicts), default=0)
    for verdict, figures in zip(verdicts, contract_lines(verdicts), strict=True):
        status = verdict.status.value
        head = (f"{status.upper():<{status_width}}  ", STYLES[status])
        name = (f"{plain(phrases.contract_name(verdict)):<{name_width}}", "bold")
        yield Text.assemble(head, name, plain(f"  {figures}".rstrip()))
        if view.verbose:
            yield Text(" " * (status_width + 2) + plain(f"{phrases.contract_title(verdict)}: {sentence(verdict)}"))


def _failures(verdict: ContractVerdict, verbose: bool) -> Iterator[Text]:
    """Yield at most `MAX_BLOCKS` blocks of failures of a contract, and a line that names the other failures.

    Then yield the claims whose premise does not hold and the undecided claims, by reason.
    """
    groups = phrases.group_by_exception(phrases.detailed_results(verdict))
    for first, *same_exception in groups[:MAX_BLOCKS]:
        yield Text()
        yield from _block(first, verdict, verbose)
        if same_exception:
            yield from _result_line(first.outcome.value, same_exception, f"the exception of {first.falsifier.id}")
    if len(groups) > MAX_BLOCKS:
        rest = [result for group in groups[MAX_BLOCKS:] for result in group]
        yield from _result_line(f"{len(rest)} more", rest, "without details here; the JSON report has the details")
    for reason, results in phrases.group_by_premise(verdict):
        names = ", ".join(result.falsifier.id for result in results)
        yield Text()
        yield _labelled("VACUOUS", STYLES["vacuous"], plain(f"{reason}: {names}"))
    for reason, results in phrases.group_undecided(verdict).items():
        if reason in UNFINISHED:
            continue  # `_not_run` yields one line for all contracts
        if phrases.is_whole_contract(verdict, results):
            yield Text()
            yield _labelled("UNDECIDED", STYLES["undecided"], _indented(f"every claim: {reason}"))
        else:
            yield from _result_line("undecided", results, reason)


def _not_run(report: Report, verbose: bool) -> Iterator[Text]:
    """Yield a line for every reason why the validation ended early; with `verbose` also the claims not run."""
    for reason, unfinished in phrases.group_unfinished(report):
        remark = phrases.unfinished_sentence(reason, unfinished) + ("" if verbose else " (-v lists them)")
        yield Text()
        yield _labelled("UNDECIDED", STYLES["undecided"], remark)
        for verdict, results in unfinished if verbose else ():
            names = ", ".join(f"{result.falsifier.id} on {result.device}" for result in results)
            yield Text(" " * INDENT + plain(f"{phrases.contract_name(verdict)}: {names}"))


def _result_line(label: str, results: list[Result], remark: str, max_names: int = MAX_NAMES) -> Iterator[Text]:
    """Yield an empty line, and one line that names at most `max_names` of the results."""
    names = listed([f"{result.falsifier.id}{phrases.on_device(result)}" for result in results], max_names)
    yield Text()
    style = STYLES.get(label, STYLES["undecided"])
    yield _labelled(label.upper(), style, _indented(f"{names}: {remark}"))


def _block(result: Result, verdict: ContractVerdict, verbose: bool) -> Iterator[Text]:
    """Yield the outcome, id and location of a failure, then its details; a repeated label is shown once."""
    name = (plain(result.falsifier.id), "bold")
    outcome = result.outcome.value
    place = f"{phrases.on_device(result)}  {details.claim_location(result, verbose=verbose)}".rstrip()
    yield _labelled(outcome.upper(), STYLES[outcome], name, plain(place))
    previous = ""
    for label, text in details.lines(result, verdict, verbose=verbose):
        shown = "" if label == previous else label
        yield Text.assemble((f"  {shown:<{INDENT - 2}}", "dim"), _indented(text))
        previous = label


def _indented(text: str) -> str:
    return plain(text).replace("\n", "\n" + " " * INDENT)


def _labelled(label: str, style: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble((f"{label:<10} ", style), *parts)
