"""Decides whether a comparison with a base fails: what became weaker, but for what a waiver in the contract accepts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum

from pv.contract.finding import Severity
from pv.contract.model import Waiver
from pv.contract.names import Target
from pv.results.saved.changes import Change, ChangeKind, changes
from pv.results.saved.hunks import Hunks
from pv.results.verdict import Report


class FailOn(Enum):
    """The changes for which a comparison fails."""

    WEAKER = "weaker"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The differences of a report from its base, worst first, and what fails because of them.

    notes: the files of the base that could not be compared. hunks: the lines that changed since it, by file.
    """

    changes: tuple[Change, ...]
    fail_on: FailOn
    notes: tuple[str, ...] = ()
    hunks: Hunks = field(default_factory=dict)

    @property
    def failing(self) -> tuple[Change, ...]:
        """Return the changes that fail the comparison."""
        gated = self.fail_on is FailOn.WEAKER
        return tuple(change for change in self.changes if gated and change.kind is ChangeKind.WEAKER)

    def exit_code(self, report: Report) -> int:
        """Return the exit code of the report; 1 where it passed or was undecided and the comparison fails."""
        return 1 if self.failing and report.exit_code in (0, 2) else report.exit_code


def compare(
    base: Report,
    now: Report,
    *,
    fail_on: FailOn,
    today: date,
    is_gone: Callable[[Target], bool] = lambda _: False,
    further: Iterable[Change] = (),
) -> Compared:
    """Return the differences of a report from its base. A waiver that has expired by `today` is one of them.

    A waiver of a contract accepts what became weaker in it; `removed` also names a whole contract that is gone.
    is_gone: returns whether the project does not define a function any more. A clause that names it by its new name,
    and is judged alike, is not weaker. further: changes that the reports do not show.
    """
    waivers = [(v.contract.id, waiver) for v in now.contracts for waiver in v.contract.waivers]
    renamed = (_renamed(change, is_gone) for change in (*changes(base, now), *further))
    found = [_waived(change, waivers, today) for change in renamed]
    found += [_expired(contract, waiver) for contract, waiver in waivers if not _counts(waiver, today)]
    found.sort(key=lambda change: list(ChangeKind).index(change.kind))
    return Compared(changes=tuple(found), fail_on=fail_on, notes=tuple(_unread(base)))


def _renamed(change: Change, is_gone: Callable[[Target], bool]) -> Change:
    """Return the change of a clause that follows a renaming of the code as one of words."""
    if not change.renamed or not all(map(is_gone, change.renamed)):
        return change
    names = " and ".join(map(str, change.renamed))
    return replace(change, kind=ChangeKind.REWORDED, text=f"{change.text}; {names} renamed")


def _waived(change: Change, waivers: list[tuple[str, Waiver]], today: date) -> Change:
    """Return a weakening as waived, if a waiver accepts it today."""
    if change.kind is not ChangeKind.WEAKER:
        return change
    for contract, waiver in waivers:
        same = contract == change.contract.partition(" on ")[0] or change.name == change.contract
        if same and _names(waiver, change) and _counts(waiver, today):
            text = f"{change.text}; waived until {waiver.expires} by {waiver.owner}: {waiver.reason}"
            return replace(change, kind=ChangeKind.WAIVED, text=text)
    return change


def _names(waiver: Waiver, change: Change) -> bool:
    return change.name == (waiver.removed if change.removed else waiver.weaker)


def _counts(waiver: Waiver, today: date) -> bool:
    return waiver.last_day is not None and today <= waiver.last_day


def _expired(contract: str, waiver: Waiver) -> Change:
    text = f"the waiver of {waiver.owner} expired on {waiver.expires}: restore the clause, or renew the waiver"
    return Change(
        kind=ChangeKind.WEAKER,
        contract=contract,
        claim=waiver.name,
        text=text,
        name=waiver.name,
        location=waiver.location,
    )


def _unread(base: Report) -> Iterator[str]:
    """Yield a note for each file of the base that was refused, with the first reason."""
    refused = [finding for finding in base.findings if finding.severity is Severity.REFUSAL]
    first = {finding.location.path: finding for finding in reversed(refused)}
    yield from (f"the base's {path} is not compared: {first[path].message}" for path in sorted(first))
