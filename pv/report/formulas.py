"""The equations of contracts that `pv` evaluates, for people: as they were parsed, in text or LaTeX."""

import ast
from collections.abc import Iterator, Sequence

from pv.equations.latex import latex
from pv.equations.parsed import Parsed, parse_equations
from pv.model import Contract


def render(contracts: Sequence[Contract], form: str) -> str:
    """Every executable equation of the contracts that can be read, in `form`: text or latex."""
    lines = (line for contract in contracts for line in _contract(contract, as_latex=form == "latex"))
    return "".join(f"{line}\n" for line in lines)


def _contract(contract: Contract, *, as_latex: bool) -> Iterator[str]:
    parsed, _ = parse_equations(contract.executable)
    if parsed:
        yield f"{'% ' if as_latex else ''}{contract.id} {contract.version}  {contract.where.path}"
    units = {equation.name: equation.unit for equation in contract.equations}
    for equation in parsed.values():
        yield ""
        yield from _latex(equation) if as_latex else _text(equation, units[equation.name])


def _latex(equation: Parsed) -> Iterator[str]:
    yield f"% {equation.name}"
    yield latex(equation.name, equation.formula)


def _text(equation: Parsed, unit: str) -> Iterator[str]:
    yield f"  {equation.name}" + (f"  [{unit}]" if unit else "")
    for line in equation.formula.lines:
        value = ", ".join(map(ast.unparse, line.value.elts)) if isinstance(line.value, ast.Tuple) else None
        yield f"      {line.name or equation.name} = {value or ast.unparse(line.value)}"
    for invariant in equation.invariants:
        yield f"      always {ast.unparse(invariant.lines[-1].value)}"
    if equation.requires is not None:
        yield f"      where {ast.unparse(equation.requires.lines[-1].value)}"
    if equation.derivative is not None:
        yield f"      the derivative of {equation.derivative.equation} by {equation.derivative.variable}"
    if equation.call is not None:
        yield f"      code: {equation.call.text}"
