"""Format lists: contracts and claims, and the tasks of a dry run, as text or JSON; equations as text or LaTeX."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from pv.contract import sharing
from pv.contract.model import Contract
from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.equations.display import latex, text
from pv.equations.parse import parse_equations
from pv.report.wrapping import plain, wrap_line
from pv.results.dry_run import DryRun
from pv.results.saved.report import to_json


def render(contracts: Sequence[Contract], form: str, *, width: int = 0, verbose: bool = False) -> str:
    """Return a list of contracts with their claims.

    Args:
        contracts: The contracts.
        form: "text" or "json".
        width: Width of the terminal in columns; 0 for no wrapping. It has no effect on JSON.
        verbose: Also show descriptions, predictions (or the locations of claims without one), the guesses of authors,
            and mutants. It has no effect on JSON.
    """
    if form == "json":
        return json.dumps([_data(contract) for contract in contracts], indent=1, ensure_ascii=False) + "\n"
    lines = (line for contract in contracts for line in _text(contract, verbose))
    return "".join(f"{wrap_line(line, width)}\n" for line in lines)


def _text(contract: Contract, verbose: bool) -> Iterator[str]:
    yield f"{contract.id} {contract.version}  {contract.location.path}"
    if verbose:
        yield f"  {contract.description}"
    for claim in contract.claims:
        yield f"  {claim.id}  [{', '.join(claim.devices)}]  {claim.rule}"
        engine = engine_of(claim)
        over = f"  over {scope}" if (scope := engine.scope(claim)) else ""
        yield f"      {engine.binding(claim)}{over}" + (f"  kills {', '.join(claim.kills)}" if claim.kills else "")
        if verbose:
            yield f"      predicted {claim.prediction}" if claim.prediction else f"      at {claim.location}"
            yield from [f"      author {claim.guess}"] if claim.guess else []
    if verbose:
        yield from (f"  mutant {mutant.id}  {mutant.fault}" for mutant in contract.mutants)


def _data(contract: Contract) -> dict[str, object]:
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.location.path),
        "falsifiers": [
            {
                "id": claim.id,
                "rule": claim.rule,
                "test": str(claim.test) if claim.test is not None else None,
                "equation": claim.equation,
                "devices": list(claim.devices),
                "kills": list(claim.kills),
            }
            for claim in contract.falsifiers
        ],
        "harnesses": [
            {
                "id": harness.id,
                "rule": harness.rule,
                "predicate": str(harness.test) if harness.test is not None else None,
                "bounds": dict(harness.bounds),
                "requires": harness.requires,
                "engine": harness.engine,
                "kills": list(harness.kills),
            }
            for harness in contract.harnesses
        ],
    }


def render_formulas(contracts: Sequence[Contract], form: str) -> str:
    """Return every valid executable equation of the contracts as a formula.

    Args:
        contracts: The contracts.
        form: "text" or "latex".
    """
    lines = (line for contract in contracts for line in _formulas(contract, as_latex=form == "latex"))
    return "".join(f"{plain(line)}\n" for line in lines)


def _formulas(contract: Contract, *, as_latex: bool) -> Iterator[str]:
    definitions, _ = parse_equations(sharing.executable_equations(contract))
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


FORMAT = "pv-dry-run/1"


def dry_run_text(result: DryRun) -> str:
    """Return one line per contract with its tasks by kind and its mutants, then the problems, and a line of totals."""
    width = max(map(len, result.tasks), default=0)
    lines = [f"{id_:{width}}  {_task_counts(result, id_)}" for id_ in result.tasks]
    number = count(sum(map(len, result.tasks.values())), "task")
    devices = " and ".join(result.devices)
    last = f"{number} for {devices} in {count(len(result.tasks), 'contract')}, none was run; exit {result.exit_code}"
    return plain("\n".join([*lines, *result.problems, last, ""]))


def _task_counts(result: DryRun, id_: str) -> str:
    """Return the number of tasks of a contract on each device, and the number of its mutants, as text."""
    tasks = result.tasks[id_]
    parts = []
    for device in result.devices:
        kinds = Counter(task.kind for task in tasks if task.device == device and not task.mutant)
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "nothing"
        parts.append(f"{device}: {counts}")
    if "cpu" in result.devices:  # mutants are tried on the CPU only
        declared, generated = len({task.mutant for task in tasks if task.mutant}), result.on_generated_mutants[id_]
        parts.append(f"{count(declared, 'declared mutant')}, {count(generated, 'claim')} on generated mutants")
    return "; ".join(parts)


def dry_run_json(result: DryRun) -> str:
    """Return the result of a dry run as a JSON object, with every task."""
    contracts = [
        {
            "id": id_,
            "automatic": result.on_generated_mutants[id_],
            "tasks": [*map(asdict, result.tasks[id_])],
        }
        for id_ in result.tasks
    ]
    content = {
        "format": FORMAT,
        "exit_code": result.exit_code,
        "devices": list(result.devices),
        "contracts": contracts,
        "findings": [to_json(finding) for finding in result.findings],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
