"""Compares a report with that of a base: what fails now, what was fixed, and which requirements became weaker."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from pv.contract.finding import Location
from pv.contract.names import Target
from pv.results import gates
from pv.results.outcome import GOOD, Outcome, Result
from pv.results.saved.less import less
from pv.results.saved.weaker import Weakening, reworded, weaker
from pv.results.verdict import FAILING, ContractVerdict, Report, Status


class ChangeKind(Enum):
    """The kind of a change, worst first."""

    FAILING = "newly failing"
    WEAKER = "weaker"
    """The contract asks for less."""
    WAIVED = "weaker, waived"
    LESS = "less measured"
    """The results show less, though the contract asks for as much."""
    STALE = "evidence gone stale"
    UNDECIDED = "newly undecided"
    REWORDED = "reworded"
    FIXED = "fixed"
    ADDED = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference from the base. claim: the id of a claim or mutant; "" for another clause or a whole contract.

    name: the clause that became weaker, as a waiver names it. location: its place, that of a `removed` one in the base.
    renamed: the code of which the clause names another one that is judged alike.
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
    """Return the differences of a report from its base, worst first. What was not selected is left out."""
    before, after = _by_name(base), _by_name(now)
    found = list(_removed(before, after, now))
    for name, verdict in after.items():
        found += _added(name, verdict) if name not in before else _changed(name, before[name], verdict)
    return tuple(sorted(found, key=lambda change: list(ChangeKind).index(change.kind)))


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


def _weaker(contract: str, found: Weakening) -> Change:
    return Change(
        kind=ChangeKind.WEAKER,
        contract=contract,
        claim=found.claim,
        text=found.text,
        name=found.name,
        location=found.location,
        removed=found.removed,
        renamed=found.renamed,
    )


def _added(name: str, verdict: ContractVerdict) -> Iterator[Change]:
    claims, mutants = len(verdict.contract.claims), len(verdict.contract.mutants)
    yield Change(kind=ChangeKind.ADDED, contract=name, text=f"contract with {claims} claims and {mutants} mutants")
    yield from _outcomes(name, {}, verdict)


def _changed(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    if not old.absent:
        yield from _results(name, old, new)
    if not new.absent:
        yield from (_weaker(name, found) for found in weaker(old, new))
        yield from (Change(kind=ChangeKind.LESS, contract=name, claim=c, text=text) for c, text in less(old, new))
        for claim, text, place in reworded(old.contract, new):
            yield Change(kind=ChangeKind.REWORDED, contract=name, claim=claim, text=text, location=place)
        yield from _grown(name, old, new)


def _results(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    before = {(result.falsifier.id, result.device): result for result in old.results}
    found = [*_outcomes(name, before, new), *_unmeasured(name, old, new)]
    yield from found
    explained = {ChangeKind.FAILING, ChangeKind.STALE, ChangeKind.UNDECIDED} & {change.kind for change in found}
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
    """Yield the decided results whose claim still names the device, and that the report does not hold."""
    known = {(result.falsifier.id, result.device) for result in new.results}
    selected = {id_ for id_, _ in known}
    devices = {c.id: c.devices for c in new.contract.claims if c.id in selected or not new.partial}
    for result in old.results:
        claim, device = result.falsifier.id, result.device
        decided = result.outcome not in (Outcome.UNDECIDED, Outcome.NOT_CLAIMED)
        if decided and (claim, device) not in known and device in devices.get(claim, ()):
            text = f"not measured on {device}, was {result.outcome.value}"
            yield Change(kind=ChangeKind.UNDECIDED, contract=name, claim=claim, text=text)


def _kind(old: Result | None, new: Result) -> ChangeKind | None:
    """Return the kind of the change of one result, None if it did not change for better or worse."""
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
    unknown = old.outcome is Outcome.VACUOUS and new.unjudged
    return ChangeKind.FIXED if new.outcome in GOOD and old.outcome in FAILING and not unknown else None


def _grown(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the claims and mutants that the base does not have."""
    for noun, before, after in (
        ("claim", old.contract.claims, new.contract.claims),
        ("mutant", old.contract.mutants, new.contract.mutants),
    ):
        known = {item.id for item in before}
        for item in after:
            if item.id not in known:
                yield Change(kind=ChangeKind.ADDED, contract=name, claim=item.id, text=noun)
