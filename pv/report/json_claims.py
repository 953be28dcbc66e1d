"""The clauses of a contract as JSON: claims, declared mutants, gate, tolerances."""

from collections.abc import Iterator
from typing import Any

from pv.contract.claims import Falsifier, Harness
from pv.contract.model import Gate, Waiver
from pv.contract.mutants import Edit, Mutant
from pv.engines.registry import engine_of
from pv.results.verdict import ContractVerdict


def claim(claim: Falsifier) -> dict[str, Any]:
    """Return a claim as a JSON object."""
    return {
        "id": claim.id,
        "kind": engine_of(claim).name,
        "rule": claim.rule,
        "prediction": claim.prediction,
        "if_fails": claim.if_fails,
        "test": str(claim.test) if claim.test is not None else None,
        "equation": claim.equation,
        "run": claim.run,
        "devices": list(claim.devices),
        "kills": list(claim.kills),
        "examples": claim.examples,
        "limit": claim.limit_s,
        "path": str(claim.location.path),
        "line": claim.location.line,
        "column": claim.location.column,
        "harness": harness(claim) if isinstance(claim, Harness) else None,
    }


def harness(harness: Harness) -> dict[str, Any]:
    """Return the box of a harness as a JSON object."""
    return {
        "bounds": dict(harness.bounds),
        "requires": harness.requires,
        "engine": harness.engine,
        "limit": harness.limit_s,
    }


def mutant(mutant: Mutant) -> dict[str, Any]:
    """Return a declared mutant as a JSON object."""
    return {
        "id": mutant.id,
        "fault": mutant.fault,
        "seen_in": mutant.seen_in,
        "change": _change(mutant),
        "path": str(mutant.location.path),
        "line": mutant.location.line,
        "column": mutant.location.column,
    }


def _change(mutant: Mutant) -> dict[str, Any]:
    change = mutant.change
    if isinstance(change, Edit):
        occurrence = {} if change.occurrence is None else {"occurrence": change.occurrence}
        return {"function": str(change.function), "find": change.find, "replace": change.replace, **occurrence}
    return {"object": str(change.object), "replacement": str(change.replacement)}


def gate(gate: Gate) -> dict[str, Any]:
    """Return the gate as a JSON object; null means all."""
    return {
        "id": gate.id,
        "name": gate.name,
        "falsifiers": None if gate.falsifiers is None else sorted(gate.falsifiers),
        "mutants": None if gate.mutants is None else sorted(gate.mutants),
        "harnesses": None if gate.harnesses is None else sorted(gate.harnesses),
        "devices": list(gate.devices),
        "fresh": sorted(gate.fresh),
        "mutation_score": gate.mutation_score,
        "equivalents": gate.equivalents,
        "line": gate.location.line if gate.location is not None else None,
    }


def waiver(waiver: Waiver) -> dict[str, Any]:
    """Return a waiver as a JSON object."""
    texts = {name: getattr(waiver, name) for name in ("owner", "reason", "expires", "weaker", "removed")}
    place = waiver.location
    return {**texts, "path": str(place.path), "line": place.line, "column": place.column}


def tolerances(verdict: ContractVerdict) -> Iterator[dict[str, Any]]:
    """Yield each tolerance that the contract sets for an equation that was tried."""
    tried = {result.falsifier.equation for result in verdict.results if engine_of(result.falsifier).name == "equation"}
    for equation in verdict.contract.equations:
        given = equation.executable.get("tolerance")
        if given is not None and equation.name in tried:
            yield {"equation": equation.name, **given}
