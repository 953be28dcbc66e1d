"""Choose the location that a report shows for a failure: a changed line, else its code, else its claim."""

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
    """Return the location of a claim in its contract; "" for a claim of an installed suite, unless `verbose`."""
    place = result.falsifier.location
    return "" if is_installed(result) and not verbose else str(place)


def is_installed(result: Result) -> bool:
    """Return whether the claim of a result is in an installed suite, so in no file of the user's project."""
    path = result.falsifier.location.path
    return in_suite(str(path)) and path.parts[:1] != ("pv",)


def of_script(result: Result) -> str:
    """Return "path:line" of a finding about a script; "" for other results, and where no line is known."""
    example = result.trial.counterexample if result.trial is not None else None
    return example.place if example is not None and result.falsifier.is_of_script else ""


def of_result(result: Result, view: View) -> Location | None:
    """Return the location of a result: its code, else its claim; None for a script whose line is not known."""
    place = code(result, view)
    return place if place is not None or result.falsifier.is_of_script else result.falsifier.location


def further(result: Result) -> Iterator[Location]:
    """Yield the other places of a finding about a script."""
    example = result.trial.counterexample if result.trial is not None else None
    if example is not None and result.falsifier.is_of_script:
        yield from (Location(Path(span.path), span.line) for span in example.code[1:])


def code(result: Result, view: View) -> Location | None:
    """Return the code that a failure is about: its first line that changed since the base, else its first location."""
    # Annotations outside the changed lines are folded away on GitHub, so a changed line is preferred.
    example = result.trial.counterexample if result.trial is not None else None
    if example is None or not example.code:
        return None
    first = example.code[0]
    return next(_changed(result, view), Location(Path(first.path), first.line))


def _changed(result: Result, view: View) -> Iterator[Location]:
    changed_hunks = view.compared.hunks if view.compared is not None else {}
    example = result.trial.counterexample if result.trial is not None else None
    for span in example.code if example is not None else ():
        for line in hunks.changed_lines(changed_hunks, span.path, span.line, span.end):
            yield Location(Path(span.path), line)


def of_change(change: Change, view: View) -> Location | None:
    """Return the location of a change; a removed clause is shown at the line where it was removed."""
    if change.location is None or not change.removed or view.compared is None:
        return change.location
    line = hunks.line_now(view.compared.hunks, str(change.location.path), change.location.line)
    return change.location if line is None else replace(change.location, line=line, column=1)
