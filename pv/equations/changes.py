"""One-symbol changes of an equation: what a falsifier that holds code against it must be able to tell from it.

Only changes that the language accepts, with the same axes in the result, are changes: any other is an error of the
contract, which lint finds.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pv.equations.domain import axis_bounds
from pv.equations.language import CONSTANTS, ELEMENTWISE, FUNCTIONS, Formula, Line, Refusal
from pv.equations.values import Axes, Callee, Nothing, variable_value
from pv.equations.walk import Walk

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


@dataclass(frozen=True, slots=True)
class Change:
    """One change: of which equation, where in its expression, from what to what; and all equations, changed."""

    equation: str
    line: int
    column: int
    before: str
    after: str
    callees: Mapping[str, Callee]


def changes(name: str, callees: Mapping[str, Callee], results: tuple[Axes, ...]) -> Iterator[Change]:
    """The changes of the equation `name` and of those that it calls; `results`: the axes of its values, in order."""
    for each in _reached(name, callees):
        original, seen = callees[each], {_text(callees[each].formula)}
        for node, new in _alternatives(original):
            formula = _changed(original.formula, node, new)
            if _text(formula) in seen:
                continue
            seen.add(_text(formula))
            changed = {**callees, each: replace(original, formula=formula)}
            if _fits(name, changed, results):
                yield Change(each, *original.formula.place(node), _shown(node), _shown(new), changed)


def _reached(name: str, callees: Mapping[str, Callee]) -> list[str]:
    """The equation and all that it calls, nearest first."""
    found = [name]
    for each in found:
        nodes = (node for line in callees[each].formula.lines for node in ast.walk(line.value))
        called = [n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        found += [o for o in dict.fromkeys(called) if o in callees and o not in FUNCTIONS and o not in found]
    return found


def _fits(name: str, callees: Mapping[str, Callee], results: tuple[Axes, ...]) -> bool:
    try:
        values = _walk(callees[name], callees, (name,)).values()
    except Refusal:
        return False
    return [set(value.axes) for value in values] == [set(axes) for axes in results]


def _walk(equation: Callee, callees: Mapping[str, Callee], calling: tuple[str, ...] = ()) -> Walk:
    environment = {name: variable_value(v) for name, v in equation.variables.items() if v.kind != "size"}
    sizes = {axis: high for axis, (_, high) in axis_bounds(equation.variables).items()}
    return Walk(equation.formula, environment, sizes, Nothing(), callees, calling)


def _alternatives(equation: Callee) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Every node of an equation with each of what could stand in its place."""
    known: dict[str, object] = {name: (v.kind, v.axes, v.of) for name, v in equation.variables.items()}
    known |= dict.fromkeys(axis_bounds(equation.variables), "axis")
    for line in equation.formula.lines:
        for node in ast.walk(line.value):
            if isinstance(node, ast.expr):
                yield from ((node, new) for new in (*_of_operators(node), *_of_leaves(node, known), *_of_calls(node)))
        known[line.name] = "line"


def _of_operators(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=sign, right=right):
            yield ast.BinOp(left, _OPERATORS[type(sign)](), right)
            yield left
            if isinstance(sign, ast.Add | ast.Mult):
                yield right
            elif isinstance(sign, ast.Sub):
                yield ast.UnaryOp(ast.USub(), right)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Compare(left=left, ops=signs, comparators=others):
            for place, compared in enumerate(signs):
                for other in _COMPARISONS[type(compared)]:
                    yield ast.Compare(left, [*signs[:place], other(), *signs[place + 1 :]], others)
        case ast.BoolOp(op=joined, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(joined, ast.And) else ast.And(), values)
            for place in range(len(values)):
                rest = [*values[:place], *values[place + 1 :]]
                yield ast.BoolOp(joined, rest) if len(rest) > 1 else rest[0]
        case ast.IfExp(test=test, body=yes, orelse=no):
            yield ast.IfExp(test, no, yes)


def _of_leaves(node: ast.expr, known: Mapping[str, object]) -> Iterator[ast.expr]:
    match node:
        case ast.Constant(value=int(number)):
            yield from (_number(number + step) for step in (1, -1))
        case ast.Constant(value=float(number)):
            yield _number(2 * number)
        case ast.Name(id=name) if name in CONSTANTS:
            yield _number(0)
        case ast.Name(id=name) if name in known:
            yield from (ast.Name(other, ast.Load()) for other in known if other != name and known[other] == known[name])


def _number(value: float) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _of_calls(node: ast.expr) -> Iterator[ast.expr]:
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
        for place in range(len(arguments) - 1):
            first, second = arguments[place : place + 2]
            yield ast.Call(node.func, [*arguments[:place], second, first, *arguments[place + 2 :]], node.keywords)
    if node.keywords:
        yield ast.Call(node.func, arguments, [])


def _changed(formula: Formula, old: ast.expr, new: ast.expr) -> Formula:
    return Formula(formula.text, tuple(Line(line.name, _with(line.value, old, new)) for line in formula.lines))


def _with(node: Any, old: ast.expr, new: ast.expr) -> Any:
    """A copy of a tree with `new` in the place of `old`, which is one object of it."""
    if node is old:
        return ast.copy_location(new, old)
    if isinstance(node, list):
        return [_with(each, old, new) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: _with(value, old, new) for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def _text(formula: Formula) -> tuple[str, ...]:
    return tuple(ast.unparse(line.value) for line in formula.lines)


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
