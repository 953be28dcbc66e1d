"""The report on a screen or in a log: a line a contract, worst first, then a block for each thing to act on."""

import re
from io import StringIO

from rich.console import Console
from rich.text import Text

from pv.cells import Cell
from pv.report import words
from pv.verdict import ContractVerdict, Report

STYLES = {
    "fail": "bold red",
    "falsified": "bold red",
    "error": "bold red",
    "vacuous": "bold magenta",
    "undecided": "yellow",
    "not claimed": "dim",
    "pass": "bold green",
    "survived": "green",
    "proved": "green",
}
INDENT = 12
# Enough to act on; a screen full of the same failure hides the first.
MAX_BLOCKS = 20
MAX_NAMES = 6
# What the code under contract prints must not steer the reader's terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render(report: Report, *, color: bool = False, width: int = 100) -> str:
    """The report as text; with `color` as a terminal shows it."""
    console = Console(
        file=StringIO(), width=width, force_terminal=color, no_color=not color, highlight=False, soft_wrap=not color
    )
    for verdict in report.contracts:
        console.print(_contract(verdict))
    for finding in words.loose_findings(report):
        console.print(Text.assemble((f"{finding.severity.value:<10} ", STYLES["error"]), plain(str(finding))))
    for verdict in report.contracts:
        failed = words.blocks(verdict)
        for cell in failed[:MAX_BLOCKS]:
            console.print()
            _block(console, cell, verdict, report)
        if len(failed) > MAX_BLOCKS:
            _fold(console, f"{len(failed) - MAX_BLOCKS} MORE", failed[MAX_BLOCKS:], "like these; all in the JSON")
        for cell, said in words.close_to_their_limit(verdict):
            _fold(console, "PROVED", [cell], said)
        for reason, cells in words.undecided(verdict).items():
            _fold(console, "UNDECIDED", cells, reason)
    if report.contracts:
        console.print()
    for note in words.notes(report):
        console.print(Text(plain(f"note: {note}")))
    console.print(Text(words.closing(report)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _contract(verdict: ContractVerdict) -> Text:
    status = verdict.status.value
    head = (f"{status.upper():<10} ", STYLES[status])
    return Text.assemble(head, (plain(words.title(verdict)), "bold"), f": {words.summary(verdict)}")


def _fold(console: Console, label: str, cells: list[Cell], why: str) -> None:
    names = [f"{cell.falsifier.id} on {cell.device}" for cell in cells]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    console.print()
    console.print(
        Text.assemble((f"{label:<10} ", STYLES["undecided"]), plain(f"{', '.join(names[:MAX_NAMES])}{more}: {why}"))
    )


def _block(console: Console, cell: Cell, verdict: ContractVerdict, report: Report) -> None:
    outcome = cell.outcome.value
    head = (f"{outcome.upper():<10} ", STYLES[outcome])
    console.print(Text.assemble(head, (plain(cell.falsifier.id), "bold"), f" on {cell.device}  {cell.falsifier.where}"))
    previous = ""
    for label, text in words.lines(cell, verdict, report):
        shown = "" if label == previous else label
        body = plain(text).replace("\n", "\n" + " " * INDENT)
        console.print(Text.assemble((f"  {shown:<{INDENT - 2}}", "dim"), body))
        previous = label


def plain(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
