"""Finds what a contract requires less of than its base did: claims, definitions, mutants, gate, tolerances."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pv.contract.finding import Location
from pv.contract.model import Contract, Edit, Falsifier, Harness, Mutant, Swap, Target
from pv.results.definitions import find_changes, is_same_text, short, wider
from pv.results.outcome import GOOD, Outcome, Result, in_gate, killed
from pv.results.verdict import ContractVerdict

GATE, SCOPE = "qa_gate", "mutation_scope"
TOLERANCES = ("relative", "absolute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakening:
    """One requirement that was loosened or removed.

    Attributes:
        name: The clause, as a waiver names it.
        text: The difference.
        location: Location of the clause; a `removed` clause has its location in the base.
        claim: Id of a claim or mutant; "" for another clause.
        removed: Whether the clause was removed.
        renamed: The code that the base names, if the clause now names other code with the same results. It is a
            renaming and no weakening if the old code no longer exists.
    """

    name: str
    text: str
    location: Location
    claim: str = ""
    removed: bool = False
    renamed: tuple[Target, ...] = ()


CALLED = re.compile(r"(?!zip\()[A-Za-z_][\w.]*(?=\()")
"""Names of the functions in the call of an equation; `zip` belongs to the language of equations."""
NAME = re.compile(r"[^\W\d]\w*")
Weaker = Iterator[Weakening]


def weaker(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    """Yield every requirement of a contract that is weaker than in the base."""
    yield from _claims(old.contract, new)
    yield from _definitions(old, new)
    yield from _mutants(old.contract, new)
    yield from _required(old.contract, new.contract)
    yield from _gate(old.contract, new.contract)
    yield from _scope(old, new)
    yield from _tolerances(old, new)


def _claims(old: Contract, new: ContractVerdict) -> Weaker:
    after = {claim.id: claim for claim in new.contract.claims}
    for claim in old.claims:
        if claim.id not in after:
            yield _clause(claim.id, f"removed: {claim.rule}", claim.location, removed=True)
        else:
            now = after[claim.id]
            yield from (_clause(claim.id, text, _at(new, now, key)) for key, text in _claim(claim, now))


def _at(verdict: ContractVerdict, claim: Falsifier, key: str) -> Location:
    """Return the location of a key of a claim, or of the claim."""
    path = f"claims/{claim.id}/{key}"
    is_located = path in (verdict.definitions or {}).get("places", {})
    return _place(verdict, path) if is_located else claim.location


def _clause(id_: str, text: str, location: Location, *, removed: bool = False) -> Weakening:
    return Weakening(name=id_, claim=id_, text=text, location=location, removed=removed)


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
    if isinstance(old, Harness) and isinstance(new, Harness) and not _covers(new, old):
        yield "bounds", f"proved over {new.box}, was {old.box}"


def _attack(claim: Falsifier) -> tuple[str | None, ...]:
    """Return the test, equation and run of a claim; the file of a test is left out, because a test may move."""
    return (claim.test.name if claim.test is not None else None, claim.equation, claim.run)


def _covers(new: Harness, old: Harness) -> bool:
    return (not new.requires or is_same_text(old.requires, new.requires)) and wider(old.bounds, new.bounds)


def reworded(old: Contract, new: ContractVerdict) -> Iterator[tuple[str, str, Location]]:
    """Yield id, difference and location of the claims whose rule or prediction changed."""
    after = {claim.id: claim for claim in new.contract.claims}
    for claim in (claim for claim in old.claims if claim.id in after):
        now = after[claim.id]
        for key in ("rule", "prediction"):
            before, text = getattr(claim, key), getattr(now, key)
            if before != text:
                yield claim.id, f"{key} changed: {short(text)}, was {short(before)}", _at(new, now, key)


def _definitions(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    """Yield the definitions that changed; nothing for reports of an older version, which have no definitions."""
    if old.definitions is None or new.definitions is None:
        return
    for claim, path, text in find_changes(old.definitions, new.definitions):
        noun, _, rest = path.partition("/")
        name, _, key = rest.partition("/")
        removed = bool(name) and not key
        place = _place(old if removed else new, path)
        if claim:
            place = next(_at(new, known_claim, key) for known_claim in new.contract.claims if known_claim.id == claim)
        renamed = _renamed_function(old, new, name) if (noun, key) == ("equations", "implemented_by") else ()
        if path == "subject":
            renamed = _renamed_subject(old, new)
        yield Weakening(name=name or noun, claim=claim, text=text, location=place, removed=removed, renamed=renamed)


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
    """Return the location of a definition; if it was not saved, that of its parent or of the contract."""
    places: Mapping[str, Any] = (verdict.definitions or {}).get("places", {})
    while path and path not in places:
        path = path.rpartition("/")[0]
    start = verdict.contract.location
    return Location(start.path, **places[path]) if path else start


def _mutants(old: Contract, new: ContractVerdict) -> Weaker:
    after = {mutant.id: mutant for mutant in new.contract.mutants}
    for mutant in old.mutants:
        if mutant.id not in after:
            yield _clause(mutant.id, f"mutant removed: {mutant.fault}", mutant.location, removed=True)
        elif not _is_same_change(mutant.change, after[mutant.id].change):
            text = f"mutant changed: {mutant.fault}"
            weakening = _clause(mutant.id, text, after[mutant.id].location)
            yield replace(weakening, renamed=_renamed_targets(mutant, after[mutant.id], new))


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


def _required(old: Contract, new: Contract) -> Weaker:
    """Yield the claims and mutants that the gate no longer requires."""
    place = new.gate.location or new.location
    after = {claim.id: claim for claim in new.claims}
    for claim in old.claims:
        if claim.id in after and in_gate(old, claim) and not in_gate(new, after[claim.id]):
            yield _clause(claim.id, "no longer required by the gate", place)
    ids = {mutant.id for mutant in new.mutants}
    for mutant in old.mutants:
        was = old.gate.mutants is None or mutant.id in old.gate.mutants
        if mutant.id in ids and was and new.gate.mutants is not None and mutant.id not in new.gate.mutants:
            yield _clause(mutant.id, "mutant no longer required by the gate", place)


def _gate(old: Contract, new: Contract) -> Weaker:
    place = new.gate.location or new.location
    yield from (Weakening(name=GATE, text=text, location=place) for text in _gate_texts(old, new))


def _gate_texts(old: Contract, new: Contract) -> Iterator[str]:
    for device in sorted(old.gate.fresh - new.gate.fresh):
        yield f"fresh evidence of {device} no longer required by the gate"
    left_out = set(old.gate.devices) - set(new.gate.devices) if new.gate.devices else set()
    for device in sorted(left_out):
        yield f"the gate leaves out {device}"
    before, least = old.gate.mutation_score or 0.0, new.gate.mutation_score or 0.0
    if least < before:
        yield f"the gate requires a mutation score of {least * 100:g} %, was {before * 100:g} %"
    before, most = old.gate.equivalents, new.gate.equivalents
    if most > before:
        yield f"the gate accepts {most * 100:g} % of mutants as equivalent, was {before * 100:g} %"


def _scope(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    scopes = old.contract.mutation_scope, new.contract.mutation_scope
    for noun, before, after in (
        ("module", scopes[0].names, scopes[1].names),
        ("judge", scopes[0].judge_ids, scopes[1].judge_ids),
    ):
        for gone in (name for name in before if name not in after):
            text = f"{noun} no longer in the mutation scope: {gone}"
            yield Weakening(name=SCOPE, text=text, location=_place(new, SCOPE))


def _tolerances(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    before, after = _set_tolerances(old), _set_tolerances(new)
    for name, tolerance in after.items():
        place = _place(new, f"equations/{name}/tolerance")
        was = before.get(name)
        # Without a set tolerance pv measures the rounding of the equation, which is stricter than any set value.
        if was is None and _measured(old, name):
            values = ", ".join(f"{key} {tolerance[key]:g}" for key in TOLERANCES if key in tolerance)
            text = f"the tolerance of {name} is set to {values}, it was measured"
            yield Weakening(name=name, text=text, location=place)
        for key in TOLERANCES:
            if was is not None and tolerance.get(key, 0) > was.get(key, 0):
                text = f"the {key} tolerance of {name} is {tolerance[key]:g}, was {was.get(key, 0):g}"
                yield Weakening(name=name, text=text, location=place)


def _measured(verdict: ContractVerdict, equation: str) -> bool:
    """Return whether an equation was compared with code, or was meant to be."""
    was_compared = any(result.falsifier.equation == equation for result in verdict.results)
    return was_compared or any(claim.equation == equation for claim in verdict.contract.claims if verdict.definitions)


def _set_tolerances(verdict: ContractVerdict) -> dict[str, Mapping[str, Any]]:
    """Return the tolerances that the contract sets, by name of the equation."""
    if verdict.definitions is not None:
        tolerances = {name: keys.get("tolerance") for name, keys in verdict.definitions["equations"].items()}
    else:
        tolerances = {equation.name: equation.executable.get("tolerance") for equation in verdict.contract.equations}
    return {name: tolerance for name, tolerance in tolerances.items() if tolerance is not None}
