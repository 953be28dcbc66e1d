"""Generate equation mutants: one symbol is replaced or left out in an equation, or in an equation that it calls.

Killed mutants show that the comparison of code with the equation can fail. Only mutants that pass the type check and
keep the axes of the results are generated, since lint would report any other change of the equation.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pv.contract.wording import cut
from pv.equations.domain import Kind, axis_bounds
from pv.equations.interpret import Axes, Callee
from pv.equations.language import CONSTANTS, ELEMENTWISE, FUNCTIONS, Formula, Line, Refusal
from pv.equations.parse import infer_types

# The replacements of operators, comparisons and functions. `_call_replacements` handles the other functions.
_OPERATORS: Mapping[type, type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
_COMPARISONS: Mapping[type, tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
}  # fmt: skip
_FUNCTIONS = {
    "exp": "expm1", "expm1": "exp", "log": "log1p", "log1p": "log", "sin": "cos", "cos": "sin",
    "tanh": "sigmoid", "sigmoid": "tanh", "erf": "tanh", "maximum": "minimum",
    "minimum": "maximum", "sum": "mean", "mean": "sum", "prod": "sum", "max": "min",
    "min": "max", "norm": "sum", "logsumexp": "max", "any": "all",
    "all": "any", "softmax": "log_softmax", "log_softmax": "softmax", "cumsum": "cumprod", "cumprod": "cumsum",
}  # fmt: skip
MAX_SHOWN = 80
"""Largest number of characters of an expression that are shown."""


@dataclass(frozen=True, slots=True)
class MutatedEquation:
    """One mutant of an equation.

    Attributes:
        equation: The name of the mutated equation.
        line: The line of the replaced symbol in the expression of the equation, from 1.
        column: The column of the replaced symbol, from 1.
        before: The text of the replaced expression.
        after: The text of the replacement.
        callees: All equations by name, with the mutated equation in place of the original.
    """

    equation: str
    line: int
    column: int
    before: str
    after: str
    callees: Mapping[str, Callee]


@dataclass(frozen=True, slots=True)
class _Symbol:
    """The type of a name in an equation. Names with equal symbols can replace each other."""

    kind: Kind | None = None
    axes: Axes = ()
    of: str | None = None
    is_axis: bool = False


_AXIS, _LINE = _Symbol(is_axis=True), _Symbol()


def mutants(name: str, callees: Mapping[str, Callee], results: tuple[Axes, ...]) -> Iterator[MutatedEquation]:
    """Yield the mutants of an equation and of the equations that it calls.

    Args:
        name: The name of the equation that code is compared with.
        callees: All equations of the contract, by name.
        results: The axes of the values of `name`, in order. Mutants whose values have other axes are left out.
    """
    for called in _called_equations(name, callees):
        # Different replacements can give the same text, such as two ways from `x + 1` to `x - 1`: yield each text once.
        original, seen = callees[called], {_text(callees[called].formula)}
        for node, new in _replacements(original):
            formula = _with_replacement(original.formula, node, new)
            if _text(formula) in seen:
                continue
            seen.add(_text(formula))
            mutated = {**callees, called: replace(original, formula=formula)}
            if _passes_type_check(name, mutated, results):
                yield MutatedEquation(called, *original.formula.place(node), _shorten(node), _shorten(new), mutated)


def _called_equations(name: str, callees: Mapping[str, Callee]) -> list[str]:
    """Return the names of an equation and of all equations that it calls, directly or indirectly, nearest first."""
    names = [name]
    # Breadth-first search over the calls: the list grows while the loop reads it.
    for caller in names:
        names += [other for other in callees[caller].formula.called if other in callees and other not in names]
    return names


def _passes_type_check(name: str, callees: Mapping[str, Callee], results: tuple[Axes, ...]) -> bool:
    """Return whether the equation `name` passes the type check and its values have the axes `results`."""
    try:
        values = infer_types(callees[name], callees[name].formula, callees=callees, calling=(name,))
    except Refusal:
        return False
    return [set(value.axes) for value in values] == [set(axes) for axes in results]


def _replacements(equation: Callee) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield every node of an equation with each of its replacements."""
    symbols = {name: _Symbol(v.kind, v.axes, v.of) for name, v in equation.variables.items()}
    symbols |= dict.fromkeys(axis_bounds(equation.variables), _AXIS)
    for line in equation.formula.lines:
        for node in ast.walk(line.value):
            if isinstance(node, ast.expr):
                yield from (
                    (node, new)
                    for new in (
                        *_operator_replacements(node),
                        *_leaf_replacements(node, symbols),
                        *_call_replacements(node),
                    )
                )
        # Add the name of a line after the line, since a mutant must not use a name before its definition.
        symbols[line.name] = _LINE


def _operator_replacements(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the replacements of an operation: another operator, fewer operands, or the branches of `if` swapped."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            yield ast.BinOp(left, _OPERATORS[type(op)](), right)
            yield left
            if isinstance(op, ast.Add | ast.Mult):
                yield right
            elif isinstance(op, ast.Sub):
                yield ast.UnaryOp(ast.USub(), right)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Compare(left=left, ops=ops, comparators=right_sides):
            for index, comparison in enumerate(ops):
                for other in _COMPARISONS[type(comparison)]:
                    yield ast.Compare(left, [*ops[:index], other(), *ops[index + 1 :]], right_sides)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for index in range(len(values)):
                rest = [*values[:index], *values[index + 1 :]]
                yield ast.BoolOp(op, rest) if len(rest) > 1 else rest[0]
        case ast.IfExp(test=test, body=yes, orelse=no):
            yield ast.IfExp(test, no, yes)


def _leaf_replacements(node: ast.expr, symbols: Mapping[str, _Symbol]) -> Iterator[ast.expr]:
    """Yield the replacements of a literal or a name."""
    match node:
        case ast.Constant(value=int(number)):
            # Off-by-one errors in both directions.
            yield from (_number(number + step) for step in (1, -1))
        case ast.Constant(value=float(number)):
            yield _number(2 * number)
        case ast.Name(id=name) if name in CONSTANTS:
            yield _number(0)
        # Only names with an equal symbol: a name of another kind or with other axes would usually fail the type check.
        case ast.Name(id=name) if name in symbols:
            yield from (
                ast.Name(other, ast.Load()) for other in symbols if other != name and symbols[other] == symbols[name]
            )


def _number(value: float) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _call_replacements(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the replacements of a call: another function, the first argument alone, swapped arguments, no mask."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    name, arguments = node.func.id, node.args
    if name in _FUNCTIONS:
        yield ast.Call(ast.Name(_FUNCTIONS[name], ast.Load()), arguments, node.keywords)
    elif name in ELEMENTWISE:
        yield arguments[0]
    elif name == "where":
        yield ast.Call(node.func, [arguments[0], arguments[2], arguments[1]], [])
    elif name not in FUNCTIONS:
        for index in range(len(arguments) - 1):
            first, second = arguments[index : index + 2]
            yield ast.Call(node.func, [*arguments[:index], second, first, *arguments[index + 2 :]], node.keywords)
    if node.keywords:
        # A forgotten mask: the call without its `where`.
        yield ast.Call(node.func, arguments, [])


def _with_replacement(formula: Formula, old: ast.expr, new: ast.expr) -> Formula:
    """Return the formula with `new` in place of the node `old`."""
    return Formula(formula.text, tuple(Line(line.name, _copy_with(line.value, old, new)) for line in formula.lines))


def _copy_with(node: object, old: ast.expr, new: ast.expr) -> Any:
    """Return a copy of a tree with `new` in place of the node `old`."""
    if node is old:
        return ast.copy_location(new, old)
    if isinstance(node, list):
        return [_copy_with(item, old, new) for item in node]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: _copy_with(value, old, new) for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def _text(formula: Formula) -> tuple[str, ...]:
    """Return the text of each line, to compare formulas."""
    return tuple(ast.unparse(line.value) for line in formula.lines)


def _shorten(node: ast.expr) -> str:
    return cut(ast.unparse(node), MAX_SHOWN)
