"""Finds what a contract requires less of than its base did: removed or smaller claims, mutants, gates and evidence."""

from collections.abc import Iterator, Mapping
from typing import Any

from pv.contract.claims import Falsifier, Harness
from pv.contract.model import Contract
from pv.results.definitions import changed, short
from pv.results.outcome import Outcome, Result, in_gate
from pv.results.verdict import ContractVerdict

Weaker = Iterator[tuple[str, str]]


def weaker(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    """Yield what became weaker, each as the id of a claim or mutant ("" for the contract) and a text."""
    yield from _claims(old.contract, new.contract)
    yield from _definitions(old, new)
    yield from _mutants(old.contract, new.contract)
    yield from _gate(old.contract, new.contract)
    yield from _examples(old, new)
    yield from _judged(old, new)
    yield from _tolerances(old, new)
    yield from _score(old, new)


def _claims(old: Contract, new: Contract) -> Weaker:
    after = {claim.id: claim for claim in new.claims}
    for claim in old.claims:
        if claim.id not in after:
            yield claim.id, f"removed: {claim.rule}"
        else:
            yield from ((claim.id, text) for text in _claim(claim, after[claim.id]))


def _claim(old: Falsifier, new: Falsifier) -> Iterator[str]:
    for noun, before, after in (("mutant", old.kills, new.kills), ("device", old.devices, new.devices)):
        gone = [item for item in before if item not in after]
        if gone:
            yield f"{noun}{'' if len(gone) == 1 else 's'} no longer named: {', '.join(gone)}"
    if new.examples < old.examples:
        yield f"fewer examples asked for: {new.examples}, was {old.examples}"
    if (old.test, old.equation, old.run) != (new.test, new.equation, new.run):
        yield f"tried by {new.test or new.equation or 'prose'}, was {old.test or old.equation or 'prose'}"
    for noun in ("rule", "prediction"):
        before, after = getattr(old, noun), getattr(new, noun)
        if before != after:
            yield f"{noun} changed: {short(after)}, was {short(before)}"
    if isinstance(old, Harness) and isinstance(new, Harness) and old.box != new.box:
        yield f"proved over {new.box}, was {old.box}"


def _definitions(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    """Yield the definitions that changed; reports of an older version do not hold them."""
    if old.definitions is not None and new.definitions is not None:
        yield from changed(old.definitions, new.definitions)


def _mutants(old: Contract, new: Contract) -> Weaker:
    after = {mutant.id: mutant for mutant in new.mutants}
    for mutant in old.mutants:
        if mutant.id not in after:
            yield mutant.id, f"mutant removed: {mutant.fault}"
        elif mutant.change != after[mutant.id].change:
            yield mutant.id, f"mutant changed: {mutant.fault}"


def _gate(old: Contract, new: Contract) -> Weaker:
    after = {claim.id: claim for claim in new.claims}
    for claim in old.claims:
        if claim.id in after and in_gate(old, claim) and not in_gate(new, after[claim.id]):
            yield claim.id, "no longer required by the gate"
    known = {mutant.id for mutant in new.mutants}
    for mutant in old.mutants:
        was = old.gate.mutants is None or mutant.id in old.gate.mutants
        if mutant.id in known and was and new.gate.mutants is not None and mutant.id not in new.gate.mutants:
            yield mutant.id, "mutant no longer required by the gate"
    for device in sorted(old.gate.fresh - new.gate.fresh):
        yield "", f"fresh evidence of {device} no longer required by the gate"
    before, least = old.gate.mutation_score or 0.0, new.gate.mutation_score or 0.0
    if least < before:
        yield "", f"the gate requires a mutation score of {least * 100:g} %, was {before * 100:g} %"
    before, most = old.gate.equivalents, new.gate.equivalents
    if most > before:
        yield "", f"the gate accepts {most * 100:g} % of mutants as equivalent, was {before * 100:g} %"


def _examples(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    """Yield the claims that held on fewer valid examples than before."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    for result in new.results:
        was = before.get((result.falsifier.id, result.device))
        if was is None or was.trial is None or result.trial is None:
            continue
        if result.outcome is was.outcome is Outcome.HELD and result.trial.valid < was.trial.valid:
            yield result.falsifier.id, f"fewer valid examples: {result.trial.valid}, was {was.trial.valid}"


def _judged(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    """Yield the claims that held and were tried on mutants before, and now are not."""
    judged = {(result.falsifier.id, result.device) for result in old.results if _held(result) and not result.unjudged}
    for result in new.results:
        if result.unjudged and _held(result) and (result.falsifier.id, result.device) in judged:
            yield result.falsifier.id, "no longer tried on mutants"


def _held(result: Result) -> bool:
    return result.outcome in (Outcome.HELD, Outcome.PROVED)


def _tolerances(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    before, after = (_given(verdict.contract) for verdict in (old, new))
    for name, given in after.items():
        was = before.get(name)
        if was is None and any(result.falsifier.equation == name for result in old.results):
            yield "", f"the tolerance of {name} is set, it was measured"
        for key in ("relative", "absolute"):
            if was is not None and given.get(key, 0) > was.get(key, 0):
                yield "", f"the {key} tolerance of {name} is {given[key]:g}, was {was.get(key, 0):g}"


def _given(contract: Contract) -> dict[str, Mapping[str, Any]]:
    found = {equation.name: equation.executable.get("tolerance") for equation in contract.equations}
    return {name: given for name, given in found.items() if given is not None}


def _score(old: ContractVerdict, new: ContractVerdict) -> Weaker:
    if old.score is None or old.score.value is None:
        return
    if new.score is None or new.score.value is None:
        yield "", f"no mutation score recorded, was {old.score.percent}"
        return
    if new.score.value < old.score.value:
        yield "", f"mutation score {new.score.percent}, was {old.score.percent}"
    if new.score.changed and not old.score.changed:
        yield "", f"the mutation score is stale, changed: {', '.join(new.score.changed[:3])}"
