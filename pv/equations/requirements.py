"""Why an equation needs PyTorch: for arrays, derivatives and memory layouts. Numbers without axes need nothing."""

import ast
from collections.abc import Iterator, Mapping

from pv.equations.checks import Check
from pv.equations.definition import Definition
from pv.equations.language import Formula

_LAYOUTS = (Check.NONCONTIGUOUS_INPUTS, Check.EXPANDED_INPUTS)


def needs_torch(equation: Definition, definitions: Mapping[str, Definition]) -> str:
    """Return what an equation needs PyTorch for, such as `the array x[N]`; "" if for nothing.

    definitions: the equations that it may call.
    """
    if equation.derivative is not None:
        return f"the derivative of {equation.derivative.equation}"
    for variable in equation.variables.values():
        if variable.axes:
            return f"the array {variable.name}[{','.join(variable.axes)}]"
    for formula in _with_called(equation, definitions):
        for node in (node for line in formula.lines for node in ast.walk(line.value)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "one_hot":
                return f"the array {ast.unparse(node)}"
    return next((f"the check {check}" for check in _LAYOUTS if check in equation.checks.names), "")


def _with_called(equation: Definition, definitions: Mapping[str, Definition]) -> Iterator[Formula]:
    """Yield the formulas of an equation, and of the equations that they call."""
    pending, seen = [*equation.formulas], {equation.name}
    while pending:
        formula = pending.pop()
        yield formula
        new = [name for name in formula.called if name in definitions and name not in seen]
        seen.update(new)
        pending += [definitions[name].formula for name in new]
