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
        for name in filter(observed.held.__contains__, rules):
            tried = count(observed.records[name].tried, "time")
            yield f"held        {name}: {rules[name].removesuffix(' (hint)')} (tried {tried})"
        yield ""
        yield from _not_reached(observed)
        yield from _steps(observed)
    yield ""
    yield from (f"note: {note}" for note in observed.report.notes)
    if observed.hints and not hints:
        names = ", ".join(dict.fromkeys(name for name, _ in observed.hints))
        yield f"note: {count(len(observed.hints), 'hint')} not shown ({names}), which are no failures: --hints"
    yield observed.report.closing


def _not_reached(observed: "ObservedRun") -> Iterator[str]:
    """Yield the claims that were not reached, one line for each topic and reason."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for name in observed.not_reached:
        topic, _, number = name.rpartition("-")
        numbers.setdefault((topic, observed.records[name].not_reached), []).append(f"-{number}")
    for (topic, reason), ends in numbers.items():
        yield f"not reached {topic}{', '.join(ends)}: {reason}"


def closing(observed: "ObservedRun") -> str:
    """Return the last line: how many claims held, on how many steps, and the exit code."""
    held, falsified, missed = len(observed.held), len(observed.falsified), len(observed.not_reached)
    audited, taken = observed.audited
    processes = count(len(observed.run.processes), "process")
    parts = [
        f"{held} held, {falsified} falsified, {missed} not reached",
        f"{count(observed.run.steps, 'step')} on {processes}",
    ]
    if audited:
        # Steps of all optimizers and processes are counted here: a GAN has twice the steps of its optimizers.
        of_all = "" if taken == observed.run.steps else " of all optimizers and processes"
        parts.append(f"token weights audited in {audited} of {count(taken, 'step')}{of_all}")
    elif taken:
        parts.append("token weights not audited: no known loss")
    return "; ".join([*parts, f"exit {observed.exit_code}"])


def _steps(observed: "ObservedRun") -> Iterator[str]:
    """Yield a table of the first steps of every optimizer."""
    for title, rows in steps.groups(observed.report.steps):
        table = [steps.COLUMNS, *map(steps.cells, rows[:MAX_ROWS])]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        yield ""
        yield title
        yield from ("  ".join(map(str.rjust, row, widths)) for row in table)
        if left := steps.remaining_steps(rows, MAX_ROWS):
            yield f"  ... {left}"
