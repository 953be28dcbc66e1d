"""Contracts as lists: their claims for `pv list`, their equations for `pv show`."""

import json
from collections.abc import Iterator, Sequence

from pv.contract import sharing
from pv.contract.claims import Falsifier, Harness
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.equations.formats import latex, text
from pv.equations.parse import parse_equations
from pv.report.wrapping import hanging


def render(contracts: Sequence[Contract], form: str, *, width: int = 0, verbose: bool = False) -> str:
    """Return a list of contracts with their claims.

    Args:
        contracts: The contracts.
        form: "text" or "json".
        width: Width of the terminal in columns; 0 for no wrapping.
        verbose: Also show descriptions, predictions and mutants.
    """
    if form == "json":
        return json.dumps([_data(contract) for contract in contracts], indent=1, ensure_ascii=False) + "\n"
    lines = (line for contract in contracts for line in _text(contract, verbose))
    return "".join(f"{hanging(line, width)}\n" for line in lines)


def _text(contract: Contract, verbose: bool) -> Iterator[str]:
    yield f"{contract.id} {contract.version}  {contract.location.path}"
    if verbose:
        yield f"  {contract.description}"
    for claim in contract.claims:
        yield f"  {claim.id}  [{', '.join(claim.devices)}]  {claim.rule}"
        yield f"      {_bound(claim)}" + (f"  kills {', '.join(claim.kills)}" if claim.kills else "")
        if verbose:
            yield f"      predicted {claim.prediction}" if claim.prediction else f"      at {claim.location}"
            yield from [f"      author {claim.guess}"] if claim.guess else []
    if verbose:
        yield from (f"  mutant {mutant.id}  {mutant.fault}" for mutant in contract.mutants)


def _bound(claim: Falsifier) -> str:
    """Return the test or equation of a claim, and the inputs that it covers."""
    kind = engine_of(claim)
    scope = kind.scope(claim)
    return kind.binding(claim) + (f"  over {scope}" if scope else "")


def _data(contract: Contract) -> dict[str, object]:
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.location.path),
        "falsifiers": [_falsifier(falsifier) for falsifier in contract.falsifiers],
        "harnesses": [_harness(harness) for harness in contract.harnesses],
    }


def _falsifier(falsifier: Falsifier) -> dict[str, object]:
    return {
        "id": falsifier.id,
        "rule": falsifier.rule,
        "test": str(falsifier.test) if falsifier.test is not None else None,
        "equation": falsifier.equation,
        "devices": list(falsifier.devices),
        "kills": list(falsifier.kills),
    }


def _harness(harness: Harness) -> dict[str, object]:
    return {
        "id": harness.id,
        "rule": harness.rule,
        "predicate": str(harness.test) if harness.test is not None else None,
        "bounds": dict(harness.bounds),
        "requires": harness.requires,
        "engine": harness.engine,
        "kills": list(harness.kills),
    }


def render_formulas(contracts: Sequence[Contract], form: str) -> str:
    """Return every valid executable equation of the contracts. form: "text" or "latex"."""
    lines = (line for contract in contracts for line in _formulas(contract, as_latex=form == "latex"))
    return "".join(f"{line}\n" for line in lines)


def _formulas(contract: Contract, *, as_latex: bool) -> Iterator[str]:
    definitions, _ = parse_equations(sharing.executable(contract))
    units = {equation.name: equation.unit for equation in contract.equations}
    definitions = {name: definition for name, definition in definitions.items() if name in units}
    if definitions:
        yield f"{'% ' if as_latex else ''}{contract.id} {contract.version}  {contract.location.path}"
    for name, definition in definitions.items():
        yield ""
        if as_latex:
            yield from (f"% {name}", latex(name, definition.formula))
        else:
            yield from text(definition, units[name])
