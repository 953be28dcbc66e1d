"""Compare a report with its base: new failures, fixed claims, weaker requirements, and waivers of these.

1. The lines that changed, from `git diff`.
2. The requirements that are weaker than in the base: claims, definitions, mutants, gate, tolerances.
3. The differences of results, and the measurements that are smaller.
4. The comparison: renamings and waivers are applied to these differences.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from typing import Any

from pv.contract.finding import Location, Severity
from pv.contract.model import Contract, Edit, Falsifier, Harness, Mutant, Swap, Target, Waiver
from pv.contract.wording import FEW, listed
from pv.errors import ExitCode
from pv.results import gates
from pv.results.definitions import find_changes, is_same_text, is_wider, short
from pv.results.outcome import GOOD, Outcome, Result, in_gate, killed
from pv.results.verdict import FAILING, ContractVerdict, Report, Status

GATE, SCOPE = "qa_gate", "mutation_scope"
TOLERANCES = ("relative", "absolute")


class ChangeKind(Enum):
    """The kind of a change, worst first."""

    FAILING = "newly failing"
    WEAKER = "weaker"
    """The contract requires less than in the base."""
    WAIVED = "weaker, waived"
    LESS = "less measured"
    """The contract requires the same, but less was measured."""
    STALE = "evidence gone stale"
    UNDECIDED = "newly undecided"
    REWORDED = "reworded"
    FIXED = "fixed"
    ADDED = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference from the base.

    Attributes:
        kind: The kind of the difference.
        text: The difference in words.
        contract: The contract as reports name it; "" until the contract is compared.
        claim: Id of a claim or mutant; "" for another clause or a whole contract.
        name: The clause that became weaker, as a waiver names it.
        location: Location of the clause; a `removed` clause has its location in the base.
        removed: Whether the clause was removed.
        renamed: The code that the base names, if the clause now names other code with the same results. It is a
            renaming and no weakening if the old code no longer exists.
    """

    kind: ChangeKind
    text: str
    contract: str = ""
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


CALLED = re.compile(r"(?!zip\()[A-Za-z_][\w.]*(?=\()")
"""Names of the functions in the call of an equation; `zip` belongs to the language of equations."""
NAME = re.compile(r"[^\W\d]\w*")


def find_weakenings(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield every requirement of a contract that is weaker than in the base."""
    yield from _claims(old.contract, new)
    yield from _definitions(old, new)
    yield from _mutants(old.contract, new)
    place = new.contract.gate.location or new.contract.location
    for text in _gate_texts(old.contract, new.contract):
        yield Change(kind=ChangeKind.WEAKER, name=GATE, text=text, location=place)
    yield from _scope(old, new)
    yield from _tolerances(old, new)


def _claims(old: Contract, new: ContractVerdict) -> Iterator[Change]:
    """Yield the claims that were removed, require less, or are no longer required by the gate."""
    after = {claim.id: claim for claim in new.contract.claims}
    for claim in old.claims:
        if claim.id not in after:
            yield _clause(claim.id, f"removed: {claim.rule}", claim.location, removed=True)
            continue
        now = after[claim.id]
        yield from (_clause(claim.id, text, _at(new, now, key)) for key, text in _claim(claim, now))
        if in_gate(old, claim) and not in_gate(new.contract, now):
            place = new.contract.gate.location or new.contract.location
            yield _clause(claim.id, "no longer required by the gate", place)


def _at(verdict: ContractVerdict, claim: Falsifier, key: str) -> Location:
    """Return the location of a key of a claim, or of the claim."""
    path = f"claims/{claim.id}/{key}"
    is_located = path in (verdict.definitions or {}).get("places", {})
    return _place(verdict, path) if is_located else claim.location


def _clause(id_: str, text: str, location: Location, *, removed: bool = False) -> Change:
    """Return the weakening of a claim or mutant."""
    return Change(kind=ChangeKind.WEAKER, name=id_, claim=id_, text=text, location=location, removed=removed)


def _claim(old: Falsifier, new: Falsifier) -> Iterator[tuple[str, str]]:
    """Yield key and text of every requirement of a claim that became weaker."""
    for key, noun in (("kills", "mutant"), ("devices", "device")):
        before, after = getattr(old, key), getattr(new, key)
        gone = [item for item in before if item not in after]
        if gone:
            yield key, f"{noun}{'' if len(gone) == 1 else 's'} no longer named: {', '.join(gone)}"
    if new.examples < old.examples:
        yield "examples", f"fewer examples asked for: {new.examples}, was {old.examples}"
    if _attack(old) != _attack(new):
        yield "test", f"tried by {new.test or new.equation or 'prose'}, was {old.test or old.equation or 'prose'}"
    if isinstance(old, Harness) and isinstance(new, Harness):
        as_free = not new.requires or is_same_text(old.requires, new.requires)
        if not (as_free and is_wider(old.bounds, new.bounds)):
            yield "bounds", f"proved over {new.box}, was {old.box}"


def _attack(claim: Falsifier) -> tuple[str | None, ...]:
    """Return the test, equation and run of a claim; the file of a test is left out, because a test may move."""
    return (claim.test.name if claim.test is not None else None, claim.equation, claim.run)


def find_rewordings(old: Contract, new: ContractVerdict) -> Iterator[tuple[str, str, Location]]:
    """Yield id, difference and location of the claims whose rule or prediction changed."""
    after = {claim.id: claim for claim in new.contract.claims}
    for claim in (claim for claim in old.claims if claim.id in after):
        now = after[claim.id]
        for key in ("rule", "prediction"):
            before, text = getattr(claim, key), getattr(now, key)
            if before != text:
                yield claim.id, f"{key} changed: {short(text)}, was {short(before)}", _at(new, now, key)


def _definitions(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the definitions that changed; nothing for reports of an older version, which have no definitions."""
    if old.definitions is None or new.definitions is None:
        return
    for claim, path, text in find_changes(old.definitions, new.definitions):
        noun, _, rest = path.partition("/")
        name, _, key = rest.partition("/")
        removed = bool(name) and not key
        place = _place(old if removed else new, path)
        if claim:
            place = next(_at(new, item, key) for item in new.contract.claims if item.id == claim)
        renamed = _renamed_function(old, new, name) if (noun, key) == ("equations", "implemented_by") else ()
        if path == "subject":
            renamed = _renamed_subject(old, new)
        yield Change(
            kind=ChangeKind.WEAKER,
            name=name or noun,
            claim=claim,
            text=text,
            location=place,
            removed=removed,
            renamed=renamed,
        )


def _renamed_subject(old: ContractVerdict, new: ContractVerdict) -> tuple[Target, ...]:
    """Return the old subject if a contract names another one on which every claim has the same result."""
    assert old.definitions is not None
    claims = [claim.id for claim in new.contract.claims if claim.subject is None]
    subject = old.definitions["subject"]
    return (Target.parse(subject),) if subject and _judged_alike(claims, old, new) else ()


def _renamed_function(old: ContractVerdict, new: ContractVerdict, equation: str) -> tuple[Target, ...]:
    """Return the old function if an equation calls another one with the same arguments and the same results."""
    assert old.definitions is not None and new.definitions is not None
    definitions = old.definitions, new.definitions
    before, after = (str(definition["equations"][equation].get("implemented_by")) for definition in definitions)
    # A renaming is recognised only where both texts call one function, in the same way.
    called, calls = CALLED.findall(before), CALLED.findall(after)
    same_call = is_same_text(CALLED.sub("f", before), CALLED.sub("f", after))
    claims = [claim.id for claim in new.contract.claims if claim.equation == equation]
    if len(called) != 1 or len(calls) != 1 or not same_call or not _judged_alike(claims, old, new):
        return ()
    subject = old.definitions["claims"].get(claims[0], {}).get("subject") if claims else None
    names = {other: keys["target"] for other, keys in old.definitions["subjects"].items()}
    target = Target.parse(names.get(subject, subject) or old.definitions["subject"] or "")
    return (Target(target.module, ".".join(part for part in (target.attribute, called[0]) if part)),)


def _judged_alike(claims: Collection[str], old: ContractVerdict, new: ContractVerdict) -> bool:
    """Return whether the claims hold now and kill at least as many mutants as before.

    Claims that were not selected and claims that the subject does not make are left out.
    """
    before = {(result.falsifier.id, result.device): _kills(result) for result in old.results}
    results = [result for result in new.results if result.falsifier.id in claims and result.trial is not None]
    is_complete = new.partial or {*claims} <= {result.falsifier.id for result in results}
    return (
        bool(claims)
        and is_complete
        and all(
            result.outcome is Outcome.NOT_CLAIMED
            or (
                result.outcome in GOOD
                and not result.unjudged
                and _kills(result) >= before.get((result.falsifier.id, result.device), 0)
            )
            for result in results
        )
    )


def _kills(result: Result) -> int:
    """Return the number of mutants of the code and of the equation that a claim killed."""
    equation = result.trial.equation_mutants if result.trial is not None else None
    return sum(map(killed, result.mutants)) + (equation.killed if equation is not None else 0)


def _place(verdict: ContractVerdict, path: str) -> Location:
    """Return the location of a definition; if it was not saved, the location of its parent or of the contract."""
    places: Mapping[str, Any] = (verdict.definitions or {}).get("places", {})
    while path and path not in places:
        path = path.rpartition("/")[0]
    start = verdict.contract.location
    return Location(start.path, **places[path]) if path else start


def _mutants(old: Contract, new: ContractVerdict) -> Iterator[Change]:
    """Yield the declared mutants that were removed, changed, or are no longer required by the gate."""
    after = {mutant.id: mutant for mutant in new.contract.mutants}
    for mutant in old.mutants:
        if mutant.id not in after:
            yield _clause(mutant.id, f"mutant removed: {mutant.fault}", mutant.location, removed=True)
            continue
        now = after[mutant.id]
        if not _is_same_change(mutant.change, now.change):
            weakening = _clause(mutant.id, f"mutant changed: {mutant.fault}", now.location)
            yield replace(weakening, renamed=_renamed_targets(mutant, now, new))
        gate, was = new.contract.gate, old.gate.mutants is None or mutant.id in old.gate.mutants
        if was and gate.mutants is not None and mutant.id not in gate.mutants:
            yield _clause(mutant.id, "mutant no longer required by the gate", gate.location or new.contract.location)


def _is_same_change(old: Edit | Swap, new: Edit | Swap) -> bool:
    """Return whether two mutants make the same change; `find` and `replace` are compared without layout."""
    if not isinstance(old, Edit) or not isinstance(new, Edit):
        return old == new
    texts = (old.find, new.find), (old.replace, new.replace)
    return replace(new, find=old.find, replace=old.replace) == old and all(is_same_text(*pair) for pair in texts)


def _renamed_targets(old: Mutant, new: Mutant, verdict: ContractVerdict) -> tuple[Target, ...]:
    """Return the old code of a mutant that makes the same change to renamed code and is still killed; else ()."""
    if new.id not in verdict.killed and not verdict.partial:
        return ()
    if isinstance(old.change, Swap) and isinstance(new.change, Swap):
        return (old.change.object,) if old.change.replacement == new.change.replacement else ()
    if not isinstance(old.change, Edit) or not isinstance(new.change, Edit):
        return ()
    # 1. Pair the names in both edits: a renaming changes at most one name, everywhere.
    # 2. Apply that renaming to the old edit and compare it with the new one.
    before, after = (NAME.findall(f"{edit.find}\0{edit.replace}") for edit in (old.change, new.change))
    words = {pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]}
    if len(words) > 1:
        return ()
    find, replaced = old.change.find, old.change.replace
    for was, now in words:
        find, replaced = (re.sub(rf"\b{was}\b", now, text) for text in (find, replaced))
    if not _is_same_change(
        replace(new.change, find=find, replace=replaced, occurrence=old.change.occurrence), new.change
    ):
        return ()
    moved = (old.change.function,) if old.change.function != new.change.function else ()
    return (*moved, *(Target(old.change.function.module, was) for was, _ in words))


def _gate_texts(old: Contract, new: Contract) -> Iterator[str]:
    """Yield a text for every requirement of the gate that became weaker, except required ids."""
    for device in sorted(old.gate.fresh - new.gate.fresh):
        yield f"fresh evidence of {device} no longer required by the gate"
    for device in sorted(set(old.gate.devices) - set(new.gate.devices) if new.gate.devices else ()):
        yield f"the gate leaves out {device}"
    before, least = old.gate.mutation_score or 0.0, new.gate.mutation_score or 0.0
    if least < before:
        yield f"the gate requires a mutation score of {least * 100:g} %, was {before * 100:g} %"
    before, most = old.gate.equivalents, new.gate.equivalents
    if most > before:
        yield f"the gate accepts {most * 100:g} % of mutants as equivalent, was {before * 100:g} %"


def _scope(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the modules and judges that are no longer in the mutation scope."""
    scopes = old.contract.mutation_scope, new.contract.mutation_scope
    for noun, before, after in (
        ("module", scopes[0].names, scopes[1].names),
        ("judge", scopes[0].judge_ids, scopes[1].judge_ids),
    ):
        for gone in (name for name in before if name not in after):
            text = f"{noun} no longer in the mutation scope: {gone}"
            yield Change(kind=ChangeKind.WEAKER, name=SCOPE, text=text, location=_place(new, SCOPE))


def _tolerances(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the tolerances that were set in place of a measured one, or were increased."""
    before, after = _set_tolerances(old), _set_tolerances(new)
    for name, tolerance in after.items():
        place = _place(new, f"equations/{name}/tolerance")
        was = before.get(name)
        # Without a set tolerance pv measures the rounding of the equation, which is stricter than any set value.
        compared = [result.falsifier for result in old.results] + list(old.contract.claims if old.definitions else ())
        if was is None and any(claim.equation == name for claim in compared):
            values = ", ".join(f"{key} {tolerance[key]:g}" for key in TOLERANCES if key in tolerance)
            text = f"the tolerance of {name} is set to {values}, it was measured"
            yield Change(kind=ChangeKind.WEAKER, name=name, text=text, location=place)
        for key in TOLERANCES:
            if was is not None and tolerance.get(key, 0) > was.get(key, 0):
                text = f"the {key} tolerance of {name} is {tolerance[key]:g}, was {was.get(key, 0):g}"
                yield Change(kind=ChangeKind.WEAKER, name=name, text=text, location=place)


def _set_tolerances(verdict: ContractVerdict) -> dict[str, Mapping[str, float]]:
    """Return the tolerances that the contract sets, by name of the equation."""
    if verdict.definitions is not None:
        tolerances = {name: keys.get("tolerance") for name, keys in verdict.definitions["equations"].items()}
    else:
        tolerances = {equation.name: equation.executable.get("tolerance") for equation in verdict.contract.equations}
    return {name: tolerance for name, tolerance in tolerances.items() if tolerance is not None}


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


def find_differences(base: Report, now: Report) -> tuple[Change, ...]:
    """Return the differences of a report from its base, worst first. Contracts that were not selected are left out."""
    before, after = (
        {f"{v.contract.id} on {v.subject}" if v.subject else v.contract.id: v for v in report.contracts}
        for report in (base, now)
    )
    differences: list[Change] = []
    for name, verdict in before.items():
        if name not in after and verdict.contract.id not in now.project:
            text = f"contract removed, with {len(verdict.contract.claims)} claims"
            clause = _clause(verdict.contract.id, text, verdict.contract.location, removed=True)
            differences.append(replace(clause, contract=name, claim=""))
    for name, verdict in after.items():
        differences += _added(name, verdict) if name not in before else _changed(name, before[name], verdict)
    return tuple(sorted(differences, key=lambda change: list(ChangeKind).index(change.kind)))


def _added(name: str, verdict: ContractVerdict) -> Iterator[Change]:
    claims, mutants = len(verdict.contract.claims), len(verdict.contract.mutants)
    yield Change(kind=ChangeKind.ADDED, contract=name, text=f"contract with {claims} claims and {mutants} mutants")
    yield from _outcomes(name, {}, verdict)


def _changed(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the differences of one contract that is in both reports."""
    if not old.absent:
        yield from _results(name, old, new)
    if not new.absent:
        yield from (replace(weakening, contract=name) for weakening in find_weakenings(old, new))
        yield from (
            Change(kind=ChangeKind.LESS, contract=name, claim=c, text=text)
            for c, text in find_smaller_measurements(old, new)
        )
        for claim, text, place in find_rewordings(old.contract, new):
            yield Change(kind=ChangeKind.REWORDED, contract=name, claim=claim, text=text, location=place)
        # The claims and mutants that the base does not have.
        claims, mutants = {claim.id for claim in old.contract.claims}, {mutant.id for mutant in old.contract.mutants}
        added = [("claim", claim.id) for claim in new.contract.claims if claim.id not in claims]
        added += [("mutant", mutant.id) for mutant in new.contract.mutants if mutant.id not in mutants]
        yield from (Change(kind=ChangeKind.ADDED, contract=name, claim=id_, text=noun) for noun, id_ in added)


def _results(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the results that became better or worse, then a worse status that no result explains."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    differences = [*_outcomes(name, before, new), *_unmeasured(name, old, new)]
    yield from differences
    # A status that became worse without a worse result has its cause in the gate: the score, or a missing device.
    explained = {ChangeKind.FAILING, ChangeKind.STALE, ChangeKind.UNDECIDED} & {change.kind for change in differences}
    if old.status is Status.PASS and new.status is not Status.PASS and not explained:
        kind = ChangeKind.FAILING if new.status is Status.FAIL else ChangeKind.UNDECIDED
        yield Change(kind=kind, contract=name, text="; ".join(gates.unmet_requirements(new)))


def _outcomes(name: str, before: Mapping[tuple[str, str], Result], new: ContractVerdict) -> Iterator[Change]:
    """Yield the results whose outcome became better or worse."""
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


def find_smaller_measurements(old: ContractVerdict, new: ContractVerdict) -> Iterator[tuple[str, str]]:
    """Yield claim id ("" for the contract) and text of every measurement that is smaller than in the base."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    for result in new.results:
        was = before.get((result.falsifier.id, result.device))
        if was is None or was.outcome not in GOOD or result.outcome not in GOOD:
            continue
        if was.trial is not None and result.trial is not None and result.outcome is was.outcome is Outcome.HELD:
            if result.trial.valid < was.trial.valid:
                yield result.falsifier.id, f"fewer valid examples: {result.trial.valid}, was {was.trial.valid}"
        if result.unjudged and not was.unjudged:
            yield result.falsifier.id, "no longer tried on mutants"
    yield from (("", text) for text in _score(old, new))


def _score(old: ContractVerdict, new: ContractVerdict) -> Iterator[str]:
    """Yield a text if the mutation score is lower, missing or stale now."""
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
class BaseComparison:
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
        """Return `FAILED` if the comparison fails and the report passed or is undecided; else the report's code."""
        # A refused or interrupted report keeps its exit code, since the comparison is incomplete.
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
) -> BaseComparison:
    """Compare a report with its base and apply the waivers of its contracts.

    1. Find the differences.
    2. Turn a clause that follows a renaming of the code, with the same results, into `REWORDED`.
    3. Turn a weaker clause that a valid waiver accepts into `WAIVED`.
    4. Add every expired waiver as a weaker clause.

    Args:
        base: The report to compare with.
        now: The report of the current tree.
        fail_on: The changes that fail the comparison.
        today: The current date, on which a waiver is valid or has expired.
        is_gone: Returns whether the project no longer defines a function.
        further: Changes that the reports do not show.
    """
    waivers = [(v.contract.id, waiver) for v in now.contracts for waiver in v.contract.waivers]
    renamed = (_renamed(change, is_gone) for change in (*find_differences(base, now), *further))
    judged = [_waived(change, waivers, today) for change in renamed]
    judged += [_expired(contract, waiver) for contract, waiver in waivers if not _counts(waiver, today)]
    judged.sort(key=lambda change: list(ChangeKind).index(change.kind))
    # A file of the base that was refused is noted with the first reason.
    refused = [finding for finding in base.findings if finding.severity is Severity.REFUSAL]
    first = {finding.location.path: finding for finding in reversed(refused)}
    notes = tuple(f"the base's {path} is not compared: {first[path].message}" for path in sorted(first))
    return BaseComparison(changes=tuple(judged), fail_on=fail_on, notes=notes)


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
        named = waiver.removed if change.removed else waiver.weaker
        if same and change.name == named and _counts(waiver, today):
            text = f"{change.text}; waived until {waiver.expires} by {waiver.owner}: {waiver.reason}"
            return replace(change, kind=ChangeKind.WAIVED, text=text)
    return change


def _counts(waiver: Waiver, today: date) -> bool:
    return waiver.last_day is not None and today <= waiver.last_day


def _expired(contract: str, waiver: Waiver) -> Change:
    """Return an expired waiver as a weaker clause."""
    text = f"the waiver of {waiver.owner} expired on {waiver.expires}: restore the clause, or renew the waiver"
    return Change(
        kind=ChangeKind.WEAKER,
        contract=contract,
        claim=waiver.name,
        text=text,
        name=waiver.name,
        location=waiver.location,
    )
