"""What contracts hold, for people and for programs: their falsifiers and harnesses, what these attack and kill."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pv.model import Contract, Falsifier, Harness


def render(contracts: Sequence[Contract], form: str) -> str:
    """Every contract with all that is to be tried of it, in `form`: text or json."""
    if form == "json":
        return json.dumps([_data(contract) for contract in contracts], indent=1, ensure_ascii=False) + "\n"
    return "".join(f"{line}\n" for contract in contracts for line in _text(contract))


def _text(contract: Contract) -> Iterator[str]:
    yield f"{contract.id} {contract.version}  {contract.where.path}"
    for claim in contract.claims:
        yield f"  {claim.id}  [{', '.join(claim.devices)}]  {claim.rule}"
        yield f"      {_bound(claim)}" + (f"  kills {', '.join(claim.kills)}" if claim.kills else "")


def _bound(claim: Falsifier) -> str:
    """What it is tried by, and over which box."""
    bound = str(claim.test) if claim.test is not None else "unbound: its test is prose"
    if claim.by_equation:
        bound = f"equation {claim.equation}"
    if isinstance(claim, Harness) and claim.bounds:
        bound += f"  over {'; '.join(f'{name} {text}' for name, text in claim.bounds.items())}"
    return bound


def _data(contract: Contract) -> dict[str, Any]:
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.where.path),
        "falsifiers": [_falsifier(falsifier) for falsifier in contract.falsifiers],
        "harnesses": [_harness(harness) for harness in contract.harnesses],
    }


def _falsifier(falsifier: Falsifier) -> dict[str, Any]:
    return {
        "id": falsifier.id,
        "rule": falsifier.rule,
        "test": str(falsifier.test) if falsifier.test is not None else None,
        "equation": falsifier.equation,
        "devices": list(falsifier.devices),
        "kills": list(falsifier.kills),
    }


def _harness(harness: Harness) -> dict[str, Any]:
    return {
        "id": harness.id,
        "rule": harness.rule,
        "predicate": str(harness.test) if harness.test is not None else None,
        "bounds": dict(harness.bounds),
        "requires": harness.requires,
        "engine": harness.engine,
        "kills": list(harness.kills),
    }
