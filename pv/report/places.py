"""The place that a report names for a failure: the changed line of its code, else its code, else its claim."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pv.contract.finding import Location
from pv.engines.trial import in_suite
from pv.report import View
from pv.results.outcome import Result
from pv.results.saved import hunks
from pv.results.saved.changes import Change


def claim(result: Result, *, verbose: bool = False) -> str:
    """Return the place of a claim in its contract; "" for one of a suite that is installed, unless `verbose`."""
    place = result.falsifier.location
    installed = in_suite(str(place.path)) and place.path.parts[:1] != ("pv",)
    return "" if installed and not verbose else str(place)


def of_result(result: Result, view: View) -> Location:
    """Return the place of a result: of its code, or of its claim where that is not known."""
    return code(result, view) or result.falsifier.location


def code(result: Result, view: View) -> Location | None:
    """Return the place in the code that a failure is about: a line that changed since the base, else the closest."""
    found = result.trial.counterexample if result.trial is not None else None
    if found is None or not found.code:
        return None
    first = found.code[0]
    return next(_changed(result, view), Location(Path(first.path), first.line))


def _changed(result: Result, view: View) -> Iterator[Location]:
    known = view.compared.hunks if view.compared is not None else {}
    found = result.trial.counterexample if result.trial is not None else None
    for each in found.code if found is not None else ():
        for line in hunks.changed_lines(known, each.path, each.line, each.end):
            yield Location(Path(each.path), line)


def of_change(change: Change, view: View) -> Location | None:
    """Return the place of a change: for what is gone, the line that its own was before."""
    if change.location is None or not change.removed or view.compared is None:
        return change.location
    line = hunks.line_now(view.compared.hunks, str(change.location.path), change.location.line)
    return change.location if line is None else replace(change.location, line=line, column=1)
