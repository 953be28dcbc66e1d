"""An equation as text, from its syntax trees: what is shown is what is checked. See `latex` for LaTeX."""

import ast
from collections.abc import Iterator

from pv.equations.definition import Definition


def text(equation: Definition, unit: str) -> Iterator[str]:
    """Yield the lines that show an equation. unit: the unit of its value, or ""."""
    yield f"  {equation.name}" + (f"  [{unit}]" if unit else "")
    for line in equation.formula.lines:
        parts = line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
        yield f"      {line.name or equation.name} = {', '.join(map(ast.unparse, parts))}"
    for invariant in equation.invariants:
        yield f"      always {ast.unparse(invariant.lines[-1].value)}"
    if equation.requires is not None:
        yield f"      where {ast.unparse(equation.requires.lines[-1].value)}"
    if equation.derivative is not None:
        yield f"      the derivative of {equation.derivative.equation} by {equation.derivative.variable}"
    if equation.call is not None:
        yield f"      code: {equation.call.text}"
