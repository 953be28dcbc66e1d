"""Compare a report with its base: new failures, fixed claims, weaker requirements, and waivers of these.

The parts of this module, in order:

1. `find_weakenings`: the requirements that are weaker than in the base (claims, definitions, mutants, gate, ...).
2. `parse_diff`: the lines that changed, from `git diff`.
3. `find_differences`: the differences of requirements, results and measurements.
4. `compare`: the differences, after renamings and waivers are applied.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

from pv.contract.finding import Location, Severity
from pv.contract.model import Contract, Edit, Falsifier, Harness, Mutant, Swap, Target, Waiver
from pv.contract.wording import FEW, count, listed
from pv.errors import ExitCode
from pv.results import requirements
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
        renamed: The code that the base names, if the clause now names other code with the same results. The change is
            then a renaming and no weakening, provided that the old code no longer exists.
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
    yield from _weaker_claims(old.contract, new)
    yield from _changed_definitions(old, new)
    yield from _weaker_mutants(old.contract, new)
    for text in _weaker_gate(old.contract, new.contract):
        yield Change(kind=ChangeKind.WEAKER, name=GATE, text=text, location=_gate_location(new.contract))
    yield from _smaller_scope(old, new)
    yield from _larger_tolerances(old, new)


def _weaker_claims(old: Contract, new: ContractVerdict) -> Iterator[Change]:
    """Yield the claims that were removed, require less, or are no longer required by the gate."""
    after = {claim.id: claim for claim in new.contract.claims}
    for claim in old.claims:
        now = after.get(claim.id)
        if now is None:
            yield _weakening(claim.id, f"removed: {claim.rule}", claim.location, removed=True)
            continue
        for key, text in _weaker_keys(claim, now):
            yield _weakening(claim.id, text, _key_location(new, now, key))
        if in_gate(old, claim) and not in_gate(new.contract, now):
            yield _weakening(claim.id, "no longer required by the gate", _gate_location(new.contract))


def _gate_location(contract: Contract) -> Location:
    return contract.gate.location or contract.location


def _key_location(verdict: ContractVerdict, claim: Falsifier, key: str) -> Location:
    """Return the location of a key of a claim; if it was not saved, the location of the claim."""
    path = f"claims/{claim.id}/{key}"
    is_located = path in (verdict.definitions or {}).get("places", {})
    return _definition_location(verdict, path) if is_located else claim.location


def _weakening(id_: str, text: str, location: Location, *, removed: bool = False) -> Change:
    """Return the weakening of a claim or mutant."""
    return Change(kind=ChangeKind.WEAKER, name=id_, claim=id_, text=text, location=location, removed=removed)


def _weaker_keys(old: Falsifier, new: Falsifier) -> Iterator[tuple[str, str]]:
    """Yield key and text of every requirement of a claim that became weaker."""
    for key, noun in (("kills", "mutant"), ("devices", "device")):
        gone = [item for item in getattr(old, key) if item not in getattr(new, key)]
        if gone:
            yield key, f"{noun}{'' if len(gone) == 1 else 's'} no longer named: {', '.join(gone)}"
    if new.examples < old.examples:
        yield "examples", f"fewer examples asked for: {new.examples}, was {old.examples}"
    # The file of a test is not compared, because a test may move.
    tests = [claim.test.name if claim.test is not None else None for claim in (old, new)]
    if tests[0] != tests[1] or (old.equation, old.run) != (new.equation, new.run):
        yield "test", f"tried by {_attack(new)}, was {_attack(old)}"
    if isinstance(old, Harness) and isinstance(new, Harness):
        # A further condition excludes cases of the old proof, even if the bounds are wider.
        is_narrowed = bool(new.requires) and not is_same_text(old.requires, new.requires)
        if is_narrowed or not is_wider(old.bounds, new.bounds):
            yield "bounds", f"proved over {new.box}, was {old.box}"


def _attack(claim: Falsifier) -> str:
    """Return the test or the equation by which a claim is tried, and its run."""
    return f"{claim.test or claim.equation or 'prose'}{f' on run {claim.run}' if claim.run is not None else ''}"


def find_rewordings(old: Contract, new: ContractVerdict) -> Iterator[tuple[str, str, Location]]:
    """Yield id, difference and location of the claims whose rule or prediction changed."""
    before = {claim.id: claim for claim in old.claims}
    for claim in new.contract.claims:
        if claim.id not in before:
            continue
        for key in ("rule", "prediction"):
            was, now = getattr(before[claim.id], key), getattr(claim, key)
            if was != now:
                yield claim.id, f"{key} changed: {short(now)}, was {short(was)}", _key_location(new, claim, key)


def _changed_definitions(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the definitions that changed; nothing for reports of an older version, which have no definitions."""
    if old.definitions is None or new.definitions is None:
        return
    claims = {claim.id: claim for claim in new.contract.claims}
    for claim, path, text in find_changes(old.definitions, new.definitions):
        # A path is `subject`, SECTION/NAME/KEY, or SECTION/NAME for a removed definition.
        section, _, rest = path.partition("/")
        name, _, key = rest.partition("/")
        removed = bool(name) and not key
        verdict = old if removed else new
        location = _key_location(new, claims[claim], key) if claim else _definition_location(verdict, path)
        renamed: tuple[Target, ...] = ()
        if section == "subject":
            renamed = _renamed_subject(old, new)
        elif (section, key) == ("equations", "implemented_by"):
            renamed = _renamed_function(old, new, name)
        yield Change(
            kind=ChangeKind.WEAKER,
            name=name or section,
            claim=claim,
            text=text,
            location=location,
            removed=removed,
            renamed=renamed,
        )


def _renamed_subject(old: ContractVerdict, new: ContractVerdict) -> tuple[Target, ...]:
    """Return the old subject if a contract names another subject with the same results; else ()."""
    assert old.definitions is not None
    claims = [claim.id for claim in new.contract.claims if claim.subject is None]
    subject = old.definitions["subject"]
    return (Target.parse(subject),) if subject and _has_same_results(claims, old, new) else ()


def _renamed_function(old: ContractVerdict, new: ContractVerdict, equation: str) -> tuple[Target, ...]:
    """Return the old function if an equation calls another function with the same arguments and results; else ()."""
    assert old.definitions is not None and new.definitions is not None
    before = str(old.definitions["equations"][equation].get("implemented_by"))
    after = str(new.definitions["equations"][equation].get("implemented_by"))
    # 1. Both texts must call a single function, with the same arguments.
    functions = CALLED.findall(before)
    if len(functions) != 1 or len(CALLED.findall(after)) != 1:
        return ()
    if not is_same_text(CALLED.sub("f", before), CALLED.sub("f", after)):
        return ()
    # 2. The claims about the equation must have the same results.
    claims = [claim.id for claim in new.contract.claims if claim.equation == equation]
    if not _has_same_results(claims, old, new):
        return ()
    # 3. The function is an attribute of the subject of these claims. A claim gives its subject by name or by target;
    #    otherwise the subject of the contract applies.
    subject = old.definitions["claims"].get(claims[0], {}).get("subject")
    targets = {name: keys["target"] for name, keys in old.definitions["subjects"].items()}
    target = Target.parse(targets.get(subject, subject) or old.definitions["subject"] or "")
    return (Target(target.module, f"{target.attribute}.{functions[0]}".removeprefix(".")),)


def _has_same_results(claims: Collection[str], old: ContractVerdict, new: ContractVerdict) -> bool:
    """Return whether there are claims, and every claim holds now and kills at least as many mutants as before.

    Claims that were not selected and claims that the subject does not make are left out.
    """
    kills = {(result.falsifier.id, result.device): _kills(result) for result in old.results}
    results = [result for result in new.results if result.falsifier.id in claims and result.trial is not None]
    if not claims or not (new.partial or {*claims} <= {result.falsifier.id for result in results}):
        return False
    for result in results:
        if result.outcome is Outcome.NOT_CLAIMED:
            continue
        is_weaker = _kills(result) < kills.get((result.falsifier.id, result.device), 0)
        if result.outcome not in GOOD or result.unjudged or is_weaker:
            return False
    return True


def _kills(result: Result) -> int:
    """Return the number of mutants of the code and of the equation that a claim killed."""
    of_code = sum(killed(mutant) for mutant in result.mutants)
    of_equation = result.trial.equation_mutants if result.trial is not None else None
    return of_code + (of_equation.killed if of_equation is not None else 0)


def _definition_location(verdict: ContractVerdict, path: str) -> Location:
    """Return the location of a definition; if it was not saved, the location of its parent or of the contract."""
    places: Mapping[str, Any] = (verdict.definitions or {}).get("places", {})
    while path and path not in places:
        path = path.rpartition("/")[0]
    start = verdict.contract.location
    return Location(start.path, **places[path]) if path else start


def _weaker_mutants(old: Contract, new: ContractVerdict) -> Iterator[Change]:
    """Yield the declared mutants that were removed, changed, or are no longer required by the gate."""
    after = {mutant.id: mutant for mutant in new.contract.mutants}
    required, required_now = old.gate.mutants, new.contract.gate.mutants  # None requires all mutants
    for mutant in old.mutants:
        now = after.get(mutant.id)
        if now is None:
            yield _weakening(mutant.id, f"mutant removed: {mutant.fault}", mutant.location, removed=True)
            continue
        if not _is_same_change(mutant.change, now.change):
            weakening = _weakening(mutant.id, f"mutant changed: {mutant.fault}", now.location)
            yield replace(weakening, renamed=_renamed_targets(mutant, now, new))
        was_required = required is None or mutant.id in required
        if was_required and required_now is not None and mutant.id not in required_now:
            yield _weakening(mutant.id, "mutant no longer required by the gate", _gate_location(new.contract))


def _is_same_change(old: Edit | Swap, new: Edit | Swap) -> bool:
    """Return whether two mutants make the same change; `find` and `replace` are compared without layout."""
    if not isinstance(old, Edit) or not isinstance(new, Edit):
        return old == new
    is_same_place = replace(new, find=old.find, replace=old.replace) == old
    return is_same_place and is_same_text(old.find, new.find) and is_same_text(old.replace, new.replace)


def _renamed_targets(old: Mutant, new: Mutant, verdict: ContractVerdict) -> tuple[Target, ...]:
    """Return the old code of a mutant that makes the same change to renamed code and is still killed; else ().

    In a partial validation, the mutant need not be killed, because its claims may not have been selected.
    """
    if new.id not in verdict.killed and not verdict.partial:
        return ()
    if isinstance(old.change, Swap) and isinstance(new.change, Swap):
        return (old.change.object,) if old.change.replacement == new.change.replacement else ()
    if not isinstance(old.change, Edit) or not isinstance(new.change, Edit):
        return ()
    # 1. Pair the names in both edits: a renaming changes at most one name, everywhere.
    # 2. Apply that renaming to the old edit and compare it with the new one.
    before, after = (NAME.findall(f"{edit.find}\0{edit.replace}") for edit in (old.change, new.change))
    renamings = {(was, now) for was, now in zip(before, after, strict=False) if was != now}
    if len(renamings) > 1:
        return ()
    find, replacement = old.change.find, old.change.replace
    for was, now in renamings:
        find, replacement = (re.sub(rf"\b{was}\b", now, text) for text in (find, replacement))
    # The function of the edit may have another name as well, so only its texts and the occurrence are compared.
    expected = replace(new.change, find=find, replace=replacement, occurrence=old.change.occurrence)
    if not _is_same_change(expected, new.change):
        return ()
    moved = (old.change.function,) if old.change.function != new.change.function else ()
    return (*moved, *(Target(old.change.function.module, was) for was, _ in renamings))


def _weaker_gate(old: Contract, new: Contract) -> Iterator[str]:
    """Yield a text for every requirement of the gate that became weaker, except the required claims and mutants."""
    before, now = old.gate, new.gate
    for device in sorted(before.fresh - now.fresh):
        yield f"fresh evidence of {device} no longer required by the gate"
    # A gate without `devices` leaves out no device of the claims.
    devices = set(before.devices) or {device for claim in old.claims for device in claim.devices}
    for device in sorted(devices - set(now.devices or devices)):
        yield f"the gate leaves out {device}"
    score, was = now.mutation_score or 0.0, before.mutation_score or 0.0
    if score < was:
        yield f"the gate requires a mutation score of {score * 100:g} %, was {was * 100:g} %"
    if now.equivalents > before.equivalents:
        shares = f"{now.equivalents * 100:g} % of mutants as equivalent, was {before.equivalents * 100:g} %"
        yield f"the gate accepts {shares}"


def _smaller_scope(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the modules and judges that are no longer in the mutation scope."""
    before, now = old.contract.mutation_scope, new.contract.mutation_scope
    gone = [f"module no longer in the mutation scope: {name}" for name in before.names if name not in now.names]
    gone += [f"judge no longer in the mutation scope: {id_}" for id_ in before.judge_ids if id_ not in now.judge_ids]
    for text in gone:
        yield Change(kind=ChangeKind.WEAKER, name=SCOPE, text=text, location=_definition_location(new, SCOPE))


def _larger_tolerances(old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the tolerances that the contract now sets although the base measured them, and those that it increased."""
    before = _declared_tolerances(old)
    old_claims = [result.falsifier for result in old.results]
    if old.definitions is not None:
        old_claims += old.contract.claims
    tried_equations = {claim.equation for claim in old_claims}
    for name, tolerance in _declared_tolerances(new).items():
        location = _definition_location(new, f"equations/{name}/tolerance")
        was = before.get(name)
        # Without a declared tolerance, pv measures the rounding of the equation. Any declared value counts as weaker.
        if was is None and name in tried_equations:
            values = ", ".join(f"{key} {tolerance[key]:g}" for key in TOLERANCES if key in tolerance)
            text = f"the tolerance of {name} is set to {values}, was measured"
            yield Change(kind=ChangeKind.WEAKER, name=name, text=text, location=location)
        for key in TOLERANCES:
            if was is not None and tolerance.get(key, 0) > was.get(key, 0):
                text = f"the {key} tolerance of {name} is {tolerance[key]:g}, was {was.get(key, 0):g}"
                yield Change(kind=ChangeKind.WEAKER, name=name, text=text, location=location)


def _declared_tolerances(verdict: ContractVerdict) -> dict[str, Mapping[str, float]]:
    """Return the tolerances that the contract sets, by name of the equation."""
    if verdict.definitions is not None:
        tolerances = {name: keys.get("tolerance") for name, keys in verdict.definitions["equations"].items()}
    else:
        tolerances = {equation.name: equation.executable.get("tolerance") for equation in verdict.contract.equations}
    return {name: tolerance for name, tolerance in tolerances.items() if tolerance is not None}


HEADER = re.compile(r"@@ -(?P<old>\d+)(?:,(?P<removed>\d+))? \+(?P<new>\d+)(?:,(?P<added>\d+))? @@.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A hunk of a diff: `removed` lines from line `old` of the base became `added` lines from line `new`."""

    old: int
    removed: int
    new: int
    added: int

    @property
    def first(self) -> int:
        """Return the first changed line of the current file; for a pure removal, the line before it."""
        return max(self.new, 1)


Hunks = Mapping[str, tuple[Hunk, ...]]


def parse_diff(diff: str) -> dict[str, tuple[Hunk, ...]]:
    """Return the hunks by path of every file that still exists.

    Args:
        diff: Output of `git diff --unified=0 --no-prefix`.
    """
    hunks_by_path: dict[str, list[Hunk]] = {}
    path, lines_left = "", 0
    for line in diff.splitlines():
        # The lines of a hunk are skipped by their number: a removed line may itself read like a header.
        if lines_left:
            if not line.startswith("\\"):  # "\ No newline at end of file" is not counted
                lines_left -= 1
        elif line.startswith("+++ "):
            path = line[4:].rstrip("\t")
        elif header := HEADER.fullmatch(line):
            # A header without a number of lines means one line.
            hunk = Hunk(**{name: int(text or 1) for name, text in header.groupdict().items()})
            hunks_by_path.setdefault(path, []).append(hunk)
            lines_left = hunk.removed + hunk.added
    return {path: tuple(hunks) for path, hunks in hunks_by_path.items() if path != "/dev/null"}


def line_now(hunks: Hunks, path: str, line: int) -> int | None:
    """Return the current line at which `line` of the base was removed; None if no hunk removed it."""
    return next((hunk.first for hunk in hunks.get(path, ()) if hunk.old <= line < hunk.old + hunk.removed), None)


def changed_lines(hunks: Hunks, path: str, first: int, last: int) -> Iterator[int]:
    """Yield the first changed line of every hunk that touches the lines `first` to `last`."""
    for hunk in hunks.get(path, ()):
        # A pure removal has no lines of the current file: the line before it counts.
        if hunk.first <= last and hunk.first + max(hunk.added, 1) > first:
            yield max(hunk.first, first)


def find_differences(base: Report, now: Report) -> tuple[Change, ...]:
    """Return the differences of a report from its base, worst first. Contracts that were not selected are left out."""
    before, after = _verdicts_by_name(base), _verdicts_by_name(now)
    differences: list[Change] = []
    for name, verdict in before.items():
        if name not in after and verdict.contract.id not in now.project:
            text = f"contract removed, with {count(len(verdict.contract.claims), 'claim')}"
            clause = _weakening(verdict.contract.id, text, verdict.contract.location, removed=True)
            differences.append(replace(clause, contract=name, claim=""))
    for name, verdict in after.items():
        if name in before:
            differences += _changed_contract(name, before[name], verdict)
        else:
            differences += _new_contract(name, verdict)
    return _worst_first(differences)


def _verdicts_by_name(report: Report) -> dict[str, ContractVerdict]:
    """Return the verdicts by id; a contract that is tried on another subject has the subject in its name."""
    return {f"{v.contract.id} on {v.subject}" if v.subject else v.contract.id: v for v in report.contracts}


def _worst_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    kinds = list(ChangeKind)
    return tuple(sorted(changes, key=lambda change: kinds.index(change.kind)))


def _new_contract(name: str, verdict: ContractVerdict) -> Iterator[Change]:
    claims, mutants = count(len(verdict.contract.claims), "claim"), count(len(verdict.contract.mutants), "mutant")
    yield Change(kind=ChangeKind.ADDED, contract=name, text=f"contract with {claims} and {mutants}")
    yield from _changed_outcomes(name, {}, verdict)


def _changed_contract(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the differences of one contract that is in both reports."""
    if not old.absent:
        yield from _changed_results(name, old, new)
    if new.absent:
        return
    for weakening in find_weakenings(old, new):
        yield replace(weakening, contract=name)
    for claim, text in find_smaller_measurements(old, new):
        yield Change(kind=ChangeKind.LESS, contract=name, claim=claim, text=text)
    for claim, text, location in find_rewordings(old.contract, new):
        yield Change(kind=ChangeKind.REWORDED, contract=name, claim=claim, text=text, location=location)
    old_claims = {claim.id for claim in old.contract.claims}
    old_mutants = {mutant.id for mutant in old.contract.mutants}
    added = [("claim", claim.id) for claim in new.contract.claims if claim.id not in old_claims]
    added += [("mutant", mutant.id) for mutant in new.contract.mutants if mutant.id not in old_mutants]
    for noun, id_ in added:
        yield Change(kind=ChangeKind.ADDED, contract=name, claim=id_, text=noun)


def _changed_results(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield the results that became better or worse, then a worse status that no result explains."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    differences = [*_changed_outcomes(name, before, new), *_unmeasured(name, old, new)]
    yield from differences
    # A status that became worse without a worse result has its cause in the gate: the score, or a missing device.
    explained = {ChangeKind.FAILING, ChangeKind.STALE, ChangeKind.UNDECIDED} & {change.kind for change in differences}
    if old.status is Status.PASS and new.status is not Status.PASS and not explained:
        kind = ChangeKind.FAILING if new.status is Status.FAIL else ChangeKind.UNDECIDED
        yield Change(kind=kind, contract=name, text="; ".join(requirements.unmet_requirements(new)))


def _changed_outcomes(name: str, before: Mapping[tuple[str, str], Result], new: ContractVerdict) -> Iterator[Change]:
    """Yield the results with a change of the outcome that `_kind_of_change` reports."""
    for result in new.results:
        old = before.get((result.falsifier.id, result.device))
        kind = _kind_of_change(old, result)
        if kind is not None:
            was = f", was {old.outcome.value}" if old is not None else ", new"
            reason = f": {result.reason}" if result.reason else ""
            text = f"{result.outcome.value} on {result.device}{was}{reason}"
            id_ = result.falsifier.id
            yield Change(kind=kind, contract=name, claim=id_, text=text, name=id_, location=result.falsifier.location)


def _unmeasured(name: str, old: ContractVerdict, new: ContractVerdict) -> Iterator[Change]:
    """Yield a change for every decided result of the base that is not measured now although its claim still exists."""
    measured = {(result.falsifier.id, result.device) for result in new.results}
    # A claim that was not selected has no results, on any device, and a removed claim is reported as a weakening.
    selected = {id_ for id_, _ in measured}
    devices = {claim.id: claim.devices for claim in new.contract.claims if claim.id in selected or not new.partial}
    for result in old.results:
        claim, device = result.falsifier.id, result.device
        decided = result.outcome not in (Outcome.UNDECIDED, Outcome.NOT_CLAIMED)
        if decided and (claim, device) not in measured and device in devices.get(claim, ()):
            text = f"not measured on {device}, was {result.outcome.value}"
            yield Change(kind=ChangeKind.UNDECIDED, contract=name, claim=claim, text=text)


def _kind_of_change(old: Result | None, new: Result) -> ChangeKind | None:
    """Return the kind of change between two results of a claim; None if the change is not reported.

    Among the changes that are not reported are an undecided claim that holds now, and a new claim that does not fail.
    A failing outcome that replaces another failing outcome is `FAILING`.
    """
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
    if new.outcome in GOOD and old.outcome in FAILING:
        # Vacuous in the base means that a mutant survived. A result without mutants does not show that this was fixed.
        is_unknown = old.outcome is Outcome.VACUOUS and new.unjudged
        return None if is_unknown else ChangeKind.FIXED
    return None


def find_smaller_measurements(old: ContractVerdict, new: ContractVerdict) -> Iterator[tuple[str, str]]:
    """Yield claim id ("" for the contract) and text of every measurement that is smaller than in the base."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    for result in new.results:
        was = before.get((result.falsifier.id, result.device))
        if was is None or was.outcome not in GOOD or result.outcome not in GOOD:
            continue
        # The number of cases of a proof follows from its bounds, which are compared as a requirement.
        both_held = result.outcome is Outcome.HELD and was.outcome is Outcome.HELD
        if both_held and was.trial is not None and result.trial is not None:
            if result.trial.valid < was.trial.valid:
                yield result.falsifier.id, f"fewer valid examples: {result.trial.valid}, was {was.trial.valid}"
        if result.unjudged and not was.unjudged:
            yield result.falsifier.id, "no longer tried on mutants"
    for text in _smaller_score(old, new):
        yield "", text


def _smaller_score(old: ContractVerdict, new: ContractVerdict) -> Iterator[str]:
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
        notes: Texts for the reader, for example about files that could not be compared or judged.
        hunks: The lines that changed since the base, by file.
    """

    changes: tuple[Change, ...]
    fail_on: FailOn
    notes: tuple[str, ...] = ()
    hunks: Hunks = field(default_factory=dict)

    @property
    def failing(self) -> tuple[Change, ...]:
        """Return the changes that fail the comparison."""
        if self.fail_on is FailOn.NEVER:
            return ()
        return tuple(change for change in self.changes if change.kind is ChangeKind.WEAKER)

    def exit_code(self, report: Report) -> ExitCode:
        """Return `FAILED` if the comparison fails and the report passed or is undecided; else the report's code."""
        # A refused or interrupted report keeps its exit code, since the comparison is incomplete.
        if self.failing and report.exit_code in (ExitCode.PASSED, ExitCode.UNDECIDED):
            return ExitCode.worst(failed=True)
        return report.exit_code


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
        is_gone: Returns whether the project no longer defines a module, class or function.
        further: Changes that the reports do not show.
    """
    waivers = [(verdict.contract.id, waiver) for verdict in now.contracts for waiver in verdict.contract.waivers]
    changes = [_accept_renaming(change, is_gone) for change in (*find_differences(base, now), *further)]
    changes = [_apply_waivers(change, waivers, today) for change in changes]
    changes += [_expired_waiver(contract, waiver) for contract, waiver in waivers if not _is_valid(waiver, today)]
    # Note every file of the base that was refused, with the first reason.
    messages: dict[Path, str] = {}
    for finding in base.findings:
        if finding.severity is Severity.REFUSAL:
            messages.setdefault(finding.location.path, finding.message)
    notes = tuple(f"the base's {path} is not compared: {messages[path]}" for path in sorted(messages))
    return BaseComparison(changes=_worst_first(changes), fail_on=fail_on, notes=notes)


def _accept_renaming(change: Change, is_gone: Callable[[Target], bool]) -> Change:
    """Return the change, as `REWORDED` if the clause only follows a renaming of code that no longer exists."""
    if not change.renamed or not all(map(is_gone, change.renamed)):
        return change
    names = " and ".join(map(str, change.renamed))
    return replace(change, kind=ChangeKind.REWORDED, text=f"{change.text}; {names} renamed")


def _apply_waivers(change: Change, waivers: list[tuple[str, Waiver]], today: date) -> Change:
    """Return a weakening as waived, if a waiver accepts it today."""
    if change.kind is not ChangeKind.WEAKER:
        return change
    for contract, waiver in waivers:
        # The removal of a whole contract can only be waived in another contract.
        applies = contract == change.contract.partition(" on ")[0] or change.name == change.contract
        clause = waiver.removed if change.removed else waiver.weaker
        if applies and change.name == clause and _is_valid(waiver, today):
            text = f"{change.text}; waived until {waiver.expires} by {waiver.owner}: {waiver.reason}"
            return replace(change, kind=ChangeKind.WAIVED, text=text)
    return change


def _is_valid(waiver: Waiver, today: date) -> bool:
    return waiver.last_day is not None and today <= waiver.last_day


def _expired_waiver(contract: str, waiver: Waiver) -> Change:
    """Return the weakening for a waiver that has expired or has an invalid date."""
    end = f"expired on {waiver.expires}" if waiver.last_day else f"has the invalid date {waiver.expires!r}"
    text = f"the waiver of {waiver.owner} {end}: restore the clause, or renew the waiver"
    return replace(_weakening(waiver.name, text, waiver.location), contract=contract)
