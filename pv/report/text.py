"""The report on a screen or in a log: a line a contract, worst first, then a block for each thing to act on."""

import re
from io import StringIO

from rich.console import Console
from rich.text import Text

from pv.report import words
from pv.verdict import Cell, ContractVerdict, Report

STYLES = {
    "fail": "bold red",
    "falsified": "bold red",
    "error": "bold red",
    "vacuous": "bold magenta",
    "undecided": "yellow",
    "pass": "bold green",
    "survived": "green",
    "proved": "green",
}
INDENT = 12
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
        console.print(Text.assemble((f"{finding.severity.value:<10} ", STYLES["error"]), _plain(str(finding))))
    for verdict in report.contracts:
        for cell in words.blocks(verdict):
            console.print()
            _block(console, cell)
    if report.contracts:
        console.print()
    for note in report.notes:
        console.print(Text(_plain(f"note: {note}")))
    console.print(Text(words.closing(report)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _contract(verdict: ContractVerdict) -> Text:
    status = verdict.status.value
    name = _plain(f"{verdict.contract.id} {verdict.contract.version}".strip())
    return Text.assemble((f"{status.upper():<10} ", STYLES[status]), (name, "bold"), f": {words.summary(verdict)}")


def _block(console: Console, cell: Cell) -> None:
    outcome = cell.outcome.value
    head = (f"{outcome.upper():<10} ", STYLES[outcome])
    console.print(
        Text.assemble(head, (_plain(cell.falsifier.id), "bold"), f" on {cell.device}  {cell.falsifier.where}")
    )
    previous = ""
    for label, text in words.lines(cell):
        shown = "" if label == previous else label
        body = text.replace("\n", "\n" + " " * INDENT)
        console.print(Text.assemble((f"  {shown:<{INDENT - 2}}", "dim"), _plain(body)))
        previous = label


def _plain(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
