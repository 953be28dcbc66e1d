"""Compare a report with its base: what fails now, what was fixed, which requirements are weaker, what is waived."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum

from pv.contract.finding import Location, Severity
from pv.contract.model import Target, Waiver
from pv.contract.wording import FEW, listed
from pv.errors import ExitCode
from pv.results import gates
from pv.results.outcome import GOOD, Outcome, Result
from pv.results.saved.weaker import Weakening, reworded, weaker
from pv.results.verdict import FAILING, ContractVerdict, Report, Status

HEADER = re.compile(r"@@ -(?P<old>\d+)(?:,(?P<removed>\d+))? \+(?P<new>\d+)(?:,(?P<added>\d+))? @@.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A change: the `removed` lines that started at line `old` became `added` lines that start at line `new`."""

    old: int
    removed: int
    new: int
    added: int

    @property
    def first(self) -> int:
        """Return the first changed line now; for a pure removal, the line before it."""
        return max(self.new, 1)

    def meets(self, first: int, last: int) -> bool:
        """Return whether a line from `first` to `last` changed, or lines between them were removed."""
        return self.first <= last and self.first + max(self.added, 1) - 1 >= first


Hunks = Mapping[str, tuple[Hunk, ...]]


def parse_diff(diff: str) -> dict[str, tuple[Hunk, ...]]:
    """Return the hunks by path of every file that still exists.

    Args:
        diff: Output of `git diff --unified=0 --no-prefix`.
    """
    hunks_by_path: dict[str, list[Hunk]] = {}
    path, skip = "", 0
    for line in diff.splitlines():
        header = HEADER.fullmatch(line) if not skip else None
        # The lines of a hunk are skipped by number: a removed line may itself read like a header.
        if skip:
            skip -= not line.startswith("\\")
        elif line.startswith("+++ "):
            path = line[4:].rstrip("\t")
        elif header is not None:
            hunk = Hunk(**{name: int(text if text is not None else 1) for name, text in header.groupdict().items()})
            hunks_by_path.setdefault(path, []).append(hunk)
            skip = hunk.removed + hunk.added
    return {path: tuple(hunks) for path, hunks in hunks_by_path.items() if path != "/dev/null"}


def line_now(hunks: Hunks, path: str, line: int) -> int | None:
    """Return the line now at which `line` of the base was removed; None if no hunk removed it."""
    return next((h.first for h in hunks.get(path, ()) if h.old <= line < h.old + h.removed), None)


def changed_lines(hunks: Hunks, path: str, first: int, last: int) -> Iterator[int]:
    """Yield the first changed line of every hunk that touches the lines `first` to `last`."""
    for hunk in hunks.get(path, ()):
        if hunk.meets(first, last):
            yield max(hunk.first, first)


class ChangeKind(Enum):
    """The kind of a change, worst first."""

    FAILING = "newly failing"
    WEAKER = "weaker"
    """The contract requires less than in the base."""
    WAIVED = "weaker, waived"
    LESS = "less measured"
    """The contract requires as much, but less was measured."""
    STALE = "evidence gone stale"
    UNDECIDED = "newly undecided"
    REWORDED = "reworded"
    FIXED = "fixed"
    ADDED = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference from the base.

    Attributes:
        claim: Id of a claim or mutant; "" for another clause or a whole contract.
        name: The clause that became weaker, as a waiver names it.
        location: Location of the clause; a `removed` clause has its location in the base.
        renamed: The old names of code, if the clause now names code that gives the same results.
    """

    kind: ChangeKind
    contract: str
    text: str
    claim: str = ""
    name: str = ""
    location: Location | None = None
    removed: bool = False
    renamed: tuple[Target, ...] = ()

    @property
    def place(self) -> str:
        """Return the location as reports show it; "" if it is not known."""
        if self.location is None:
            return ""
        return f"{self.location.path}:{self.location.line}{' in the base' if self.removed else ''}"


def changes(base: Report, now: Report) -> tuple[Change, ...]:
    """Return the differences of a report from its base, worst first. Contracts that were not selected are left out."""
    before, after = _by_name(base), _by_name(now)
    differences = list(_removed(before, after, now))
    for name, verdict in after.items():
        differences += _added(name, verdict) if name not in before else _changed(name, before[name], verdict)
    return tuple(sorted(differences, key=lambda change: list(ChangeKind).index(change.kind)))


def _by_name(report: Report) -> dict[str, ContractVerdict]:
    return {f"{v.contract.id} on {v.subject}" if v.subject else v.contract.id: v for v in report.contracts}


def _removed(
    before: Mapping[str, ContractVerdict], after: Mapping[str, ContractVerdict], now: Report
) -> Iterator[Change]:
    for name, verdict in before.items():
        if name not in after and verdict.contract.id not in now.project:
            text = f"contract removed, with {len(verdict.contract.claims)} claims"
            gone = Weakening(name=verdict.contract.id, text=text, location=verdict.contract.location, removed=True)
            yield _weaker(name, gone)


def _weaker(contract: str, weakening: Weakening) -> Change:
    return Change(
        kind=ChangeKind.WEAKER,
        contract=contract,
        claim=weakening.claim,
        text=weakening.text,
        name=weakening.name,
        location=weakening.location,
        removed=weakening.removed,
        renamed=weakening.renamed,
    )


def _added(name: str, verdict: ContractVerdict) -> Iterator[Change]:
    claims, mutants = len(verdict.contract.claims), len(verdict.contract.mutants)
    yield Change(kind=ChangeKind.ADDED, contract=name, text=f"contract with {claims} claims and {mutants} mutants")
    yield from _outcomes(name, {}, verdict)


def _changed(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    if not old.absent:
        yield from _results(name, old, new)
    if not new.absent:
        yield from (_weaker(name, weakening) for weakening in weaker(old, new))
        yield from (Change(kind=ChangeKind.LESS, contract=name, claim=c, text=text) for c, text in less(old, new))
        for claim, text, place in reworded(old.contract, new):
            yield Change(kind=ChangeKind.REWORDED, contract=name, claim=claim, text=text, location=place)
        yield from _grown(name, old, new)


def _results(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    before = {(result.falsifier.id, result.device): result for result in old.results}
    differences = [*_outcomes(name, before, new), *_unmeasured(name, old, new)]
    yield from differences
    # A status that became worse without a worse result has its cause in the gate: the score, or a missing device.
    explained = {ChangeKind.FAILING, ChangeKind.STALE, ChangeKind.UNDECIDED} & {change.kind for change in differences}
    if old.status is Status.PASS and new.status is not Status.PASS and not explained:
        kind = ChangeKind.FAILING if new.status is Status.FAIL else ChangeKind.UNDECIDED
        yield Change(kind=kind, contract=name, text="; ".join(gates.unmet(new)))


def _outcomes(name: str, before: Mapping[tuple[str, str], Result], new: ContractVerdict) -> Iterator[Change]:
    for result in new.results:
        old = before.get((result.falsifier.id, result.device))
        kind = _kind(old, result)
        if kind is not None:
            was = f", was {old.outcome.value}" if old is not None else ", new"
            reason = f": {result.reason}" if result.reason else ""
            text = f"{result.outcome.value} on {result.device}{was}{reason}"
            id_ = result.falsifier.id
            yield Change(kind=kind, contract=name, claim=id_, text=text, name=id_, location=result.falsifier.location)


def _unmeasured(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield a change for every decided result of the base that was not measured again, if its claim still applies."""
    measured = {(result.falsifier.id, result.device) for result in new.results}
    selected = {id_ for id_, _ in measured}
    devices = {c.id: c.devices for c in new.contract.claims if c.id in selected or not new.partial}
    for result in old.results:
        claim, device = result.falsifier.id, result.device
        decided = result.outcome not in (Outcome.UNDECIDED, Outcome.NOT_CLAIMED)
        if decided and (claim, device) not in measured and device in devices.get(claim, ()):
            text = f"not measured on {device}, was {result.outcome.value}"
            yield Change(kind=ChangeKind.UNDECIDED, contract=name, claim=claim, text=text)


def _kind(old: Result | None, new: Result) -> ChangeKind | None:
    """Return the kind of change between two results of a claim; None if it is neither better nor worse."""
    if new.outcome in FAILING:
        return ChangeKind.FAILING if old is None or old.outcome is not new.outcome else None
    if old is None:
        return None
    if new.outcome is Outcome.UNDECIDED and old.outcome is not Outcome.UNDECIDED:
        stale = new.recorded is not None and new.recorded.changed
        return ChangeKind.STALE if stale else ChangeKind.UNDECIDED
    if new.outcome is Outcome.NOT_CLAIMED and old.outcome is not Outcome.NOT_CLAIMED:
        return ChangeKind.WEAKER
    if new.outcome is Outcome.HELD and old.outcome is Outcome.PROVED:
        return ChangeKind.LESS
    # Vacuous in the base means that a mutant survived; held without mutants does not show that this was fixed.
    unknown = old.outcome is Outcome.VACUOUS and new.unjudged
    return ChangeKind.FIXED if new.outcome in GOOD and old.outcome in FAILING and not unknown else None


def _grown(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the claims and mutants that the base does not have."""
    for noun, before, after in (
        ("claim", old.contract.claims, new.contract.claims),
        ("mutant", old.contract.mutants, new.contract.mutants),
    ):
        old_ids = {item.id for item in before}
        for item in after:
            if item.id not in old_ids:
                yield Change(kind=ChangeKind.ADDED, contract=name, claim=item.id, text=noun)


Less = Iterator[tuple[str, str]]


def less(old: ContractVerdict, new: ContractVerdict) -> Less:
    """Yield claim id ("" for the contract) and text of every measurement that is smaller than in the base."""
    yield from _examples(old, new)
    yield from _judged(old, new)
    yield from (("", text) for text in _score(old, new))


def _examples(old: ContractVerdict, new: ContractVerdict) -> Less:
    """Yield the claims that held on fewer valid examples than before."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    for result in new.results:
        was = before.get((result.falsifier.id, result.device))
        if was is None or was.trial is None or result.trial is None:
            continue
        if result.outcome is was.outcome is Outcome.HELD and result.trial.valid < was.trial.valid:
            yield result.falsifier.id, f"fewer valid examples: {result.trial.valid}, was {was.trial.valid}"


def _judged(old: ContractVerdict, new: ContractVerdict) -> Less:
    """Yield the claims that held and were tried on mutants before, and now are not."""
    judged = {(result.falsifier.id, result.device) for result in old.results if _holds(result) and not result.unjudged}
    for result in new.results:
        if result.unjudged and _holds(result) and (result.falsifier.id, result.device) in judged:
            yield result.falsifier.id, "no longer tried on mutants"


def _holds(result: Result) -> bool:
    return result.outcome in (Outcome.HELD, Outcome.PROVED)


def _score(old: ContractVerdict, new: ContractVerdict) -> Iterator[str]:
    if old.score is None or old.score.value is None:
        return
    if new.score is None or new.score.value is None:
        yield f"no mutation score recorded, was {old.score.percent}"
        return
    if new.score.value < old.score.value:
        yield f"mutation score {new.score.percent}, was {old.score.percent}"
    if new.score.changed and not old.score.changed:
        yield f"the mutation score is stale, changed: {listed(new.score.changed, FEW)}"


class FailOn(Enum):
    """The changes for which a comparison fails."""

    WEAKER = "weaker"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A comparison of a report with its base.

    Attributes:
        changes: The differences, worst first.
        fail_on: The changes that fail the comparison.
        notes: Texts about files that could not be compared or judged.
        hunks: The lines that changed since the base, by file.
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

    def exit_code(self, report: Report) -> ExitCode:
        """Return the exit code of the report, or `FAILED` if that is better and the comparison fails."""
        # A report that was refused or interrupted keeps its code: it says that the comparison is incomplete.
        better = report.exit_code in (ExitCode.PASSED, ExitCode.UNDECIDED)
        return ExitCode.worst(failed=True) if self.failing and better else report.exit_code


def compare(
    base: Report,
    now: Report,
    *,
    fail_on: FailOn,
    today: date,
    is_gone: Callable[[Target], bool] = lambda _: False,
    further: Iterable[Change] = (),
) -> Compared:
    """Compare a report with its base and apply the waivers of its contracts.

    1. Find the differences.
    2. Turn a clause that follows a renaming of the code, with the same results, into `REWORDED`.
    3. Turn a weaker clause that a valid waiver accepts into `WAIVED`.
    4. Add every expired waiver as a weaker clause.

    Args:
        base: The report to compare with.
        now: The report of the current tree.
        fail_on: The changes that fail the comparison.
        today: The date by which waivers may have expired.
        is_gone: Returns whether the project no longer defines a function.
        further: Changes that the reports do not show.
    """
    waivers = [(v.contract.id, waiver) for v in now.contracts for waiver in v.contract.waivers]
    renamed = (_renamed(change, is_gone) for change in (*changes(base, now), *further))
    judged = [_waived(change, waivers, today) for change in renamed]
    judged += [_expired(contract, waiver) for contract, waiver in waivers if not _counts(waiver, today)]
    judged.sort(key=lambda change: list(ChangeKind).index(change.kind))
    return Compared(changes=tuple(judged), fail_on=fail_on, notes=tuple(_unread(base)))


def _renamed(change: Change, is_gone: Callable[[Target], bool]) -> Change:
    """Return the change, as `REWORDED` if the clause only follows a renaming of code that no longer exists."""
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
