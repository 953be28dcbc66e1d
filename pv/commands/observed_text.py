"""The report of an observed run on a screen: a block for each finding, then one line that counts the claims."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pv.contract.wording import count
from pv.results import steps

if TYPE_CHECKING:
    from pv.commands.observed import ObservedRun

MAX_ROWS = 20
"""Rows of a table of steps."""


def render(observed: "ObservedRun", *, verbose: bool = False, hints: bool = False) -> str:
    """Return the report as text.

    Args:
        observed: The run.
        verbose: Also name the claims that held and were not reached, and show a table of the steps.
        hints: Also show hints.
    """
    return "\n".join(_lines(observed, verbose, hints)) + "\n"


def _lines(observed: "ObservedRun", verbose: bool, hints: bool) -> Iterator[str]:
    rules = {falsifier.id: falsifier.rule for falsifier in observed.contract.falsifiers}
    for kind in ["FALSIFIED", "HINT"] if hints else ["FALSIFIED"]:
        for name, record in observed.records.items():
            for finding in record.findings:
                if finding.hint == (kind == "HINT"):
                    yield ""
                    yield f"{kind:<11} {name}{'  ' + finding.at if finding.at else ''}"
                    yield f"  claim     {rules[name].removesuffix(' (hint)')}"
                    yield f"  seen      {finding.seen}"
                    yield f"  right     {finding.right}"
    if verbose:
        yield ""
        for name, record in observed.records.items():
            if record.not_reached:
                yield f"not reached {name}: {record.not_reached}"
            elif not any(not finding.hint for finding in record.findings):
                yield f"held        {name}: {rules[name].removesuffix(' (hint)')} (tried {count(record.tried, 'time')})"
        yield from _steps(observed)
    yield ""
    yield from (f"note: {note}" for note in observed.report.notes)
    if observed.hints and not hints:
        names = ", ".join(dict.fromkeys(name for name, _ in observed.hints))
        yield f"note: {count(len(observed.hints), 'hint')} not shown ({names}), which are no failures: --hints"
    yield _closing(observed)


def _closing(observed: "ObservedRun") -> str:
    held, falsified, missed = len(observed.held), len(observed.falsified), len(observed.not_reached)
    audited, taken = observed.audited
    weights = (
        f"token weights audited in {audited} of {count(taken, 'step')}"
        if audited
        else "token weights not audited: no known loss"
    )
    processes = count(len(observed.run.processes), "process")
    return (
        f"{held} held, {falsified} falsified, {missed} not reached; {count(observed.run.steps, 'step')} on "
        f"{processes}; "
        f"{weights}; exit {observed.exit_code}"
    )


def _steps(observed: "ObservedRun") -> Iterator[str]:
    """Yield a table of the first steps of every optimizer."""
    for title, rows in steps.groups(observed.report.steps):
        table = [steps.COLUMNS, *map(steps.cells, rows[:MAX_ROWS])]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        yield ""
        yield title
        yield from ("  ".join(map(str.rjust, row, widths)) for row in table)
        if left := steps.more(rows, MAX_ROWS):
            yield f"  ... {left}"
