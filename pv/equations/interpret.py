"""The interpreter of formulas: the value of every node of the syntax tree in a given algebra."""

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from pv.contract.spelling import did_you_mean
from pv.equations import functions
from pv.equations.broadcast import AxisRules, format_axes
from pv.equations.domain import Variable
from pv.equations.language import FUNCTIONS, Formula
from pv.equations.refusal import Refusal
from pv.equations.values import Algebra, C, Callee, Value, ValueType, value_type

MAX_CALLS = 8
_ARITHMETIC = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.Pow: "power",
}  # fmt: skip
_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class Interpreter(AxisRules[C]):
    """The interpretation of one formula. `callees` are the equations it may call; `calling` those being interpreted."""

    def __init__(
        self,
        formula: Formula,
        environment: Mapping[str, Value[C]],
        sizes: Mapping[str, int],
        algebra: Algebra[C],
        callees: Mapping[str, Callee],
        calling: tuple[str, ...] = (),
    ) -> None:
        super().__init__(formula, environment, sizes, algebra)
        self.callees, self.calling = callees, calling

    def values(self) -> tuple[Value[C], ...]:
        """Return the values of the last line. Raise `Refusal` if axes or types do not fit."""
        for line in self.formula.lines[:-1]:
            if line.name in self.sizes:
                raise self.refuse(f"{line.name!r} is already the name of an axis", line.value, "choose another name")
            self.environment[line.name] = self.value(line.value)
        last = self.formula.lines[-1].value
        return tuple(self.value(part) for part in (last.elts if isinstance(last, ast.Tuple) else [last]))

    def value(self, node: ast.expr) -> Value[C]:
        visit: Callable[[Any], Value[C]] = getattr(self, f"_{type(node).__name__.lower()}")
        return visit(node)

    def _constant(self, node: ast.Constant) -> Value[C]:
        assert isinstance(node.value, int | float), "the parser admits only numbers"
        return Value((), ValueType.NUMBER, self.algebra.constant(float(node.value)))

    def _name(self, node: ast.Name) -> Value[C]:
        if node.id in self.environment:
            return self.environment[node.id]
        if node.id in self.sizes:
            return Value((), ValueType.NUMBER, self.algebra.size(node.id))
        if node.id in ("pi", "inf"):
            return Value((), ValueType.NUMBER, self.algebra.constant(math.pi if node.id == "pi" else math.inf))
        if node.id in FUNCTIONS:
            raise self.refuse(f"{node.id!r} is a function: call it", node, f"write `{node.id}(...)`")
        if node.id in self.callees:
            call = f"{node.id}({', '.join(self.callees[node.id].arguments)})"
            raise self.refuse(f"{node.id!r} is an equation: call it", node, f"write `{call}`")
        names = [*self.environment, *self.sizes]
        raise self.refuse(f"unknown name {node.id!r}", node, did_you_mean(node.id, names))

    def _unaryop(self, node: ast.UnaryOp) -> Value[C]:
        if isinstance(node.op, ast.Not):
            return self.exact("not", [self.condition(node.operand)], node, ValueType.CONDITION)
        return self.exact("negative", [self.number(node.operand)], node, ValueType.NUMBER)

    def _binop(self, node: ast.BinOp) -> Value[C]:
        operands = [self.number(node.left), self.number(node.right)]
        return self.elementwise(_ARITHMETIC[type(node.op)], operands, node)

    def _compare(self, node: ast.Compare) -> Value[C]:
        sides = [self.comparable(side) for side in (node.left, *node.comparators)]
        holds: Value[C] | None = None
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            one = self.exact(_COMPARISONS[type(operator)], [left, right], node, ValueType.CONDITION)
            holds = one if holds is None else self.exact("and", [holds, one], node, ValueType.CONDITION)
        assert holds is not None, "a comparison has two sides"
        return holds

    def _boolop(self, node: ast.BoolOp) -> Value[C]:
        name = "and" if isinstance(node.op, ast.And) else "or"
        result = self.condition(node.values[0])
        for operand in node.values[1:]:
            result = self.exact(name, [result, self.condition(operand)], node, ValueType.CONDITION)
        return result

    def _ifexp(self, node: ast.IfExp) -> Value[C]:
        return self.choose(node.test, node.body, node.orelse, node)

    def _tuple(self, node: ast.Tuple) -> Value[C]:
        raise self.refuse("several values are allowed only on the last line", node)

    def _subscript(self, node: ast.Subscript) -> Value[C]:
        value = self.value(node.value)
        for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            literal = _integer(index)
            value = self._picked(value, index) if literal is None else self._selected(value, literal, index)
        return value

    def _selected(self, value: Value[C], place: int, node: ast.expr) -> Value[C]:
        """Return the element of a value with one axis at a literal index."""
        if len(value.axes) != 1:
            raise self.refuse(f"a literal index needs exactly one axis, got {format_axes(value.axes)}", node)
        largest = self.sizes[value.axes[0]]
        if not -largest <= place < largest:
            raise self.refuse(f"index {place} is out of range: {value.axes[0]} has at most {largest} elements", node)
        return Value((), value.type, self.algebra.select(value.content, 0, place), value.of)

    def _picked(self, value: Value[C], node: ast.expr) -> Value[C]:
        """Return the elements of a value that an index variable selects."""
        index = self.value(node)
        if index.type is not ValueType.INDEX or index.of is None:
            raise self.refuse(f"expected an integer or an index in [ ], got {index.type.with_article}", node)
        if index.of not in value.axes:
            raise self.refuse(f"an index of {index.of} cannot select from axes {format_axes(value.axes)}", node)
        rest = tuple(axis for axis in value.axes if axis != index.of)
        axes = self.union(node, rest, index.axes)
        content = self.algebra.pick(self.algebra.align(value, (*axes, index.of)), self.algebra.align(index, axes))
        return Value(axes, value.type, content, value.of)

    def _call(self, node: ast.Call) -> Value[C]:
        if not isinstance(node.func, ast.Name):
            raise self.refuse("only functions and equations can be called", node.func)
        name = node.func.id
        if name in FUNCTIONS:
            return functions.apply(self, name, node)
        if name in self.callees:
            return self._equation(name, node)
        hint = did_you_mean(name, [*FUNCTIONS, *self.callees])
        raise self.refuse(f"unknown function or equation {name!r}", node.func, hint)

    def _equation(self, name: str, node: ast.Call) -> Value[C]:
        """Return the value of another equation at the given arguments."""
        callee = self.callees[name]
        self._check_depth(name, node)
        names = callee.arguments
        if len(node.args) != len(names) or node.keywords:
            raise self.refuse(f"{name} takes the arguments {', '.join(names)}, in this order", node)
        arguments = {parameter: self.value(argument) for parameter, argument in zip(names, node.args, strict=True)}
        for parameter, argument in arguments.items():
            self._check_argument(name, callee.variables[parameter], argument, node)
        inner = Interpreter(callee.formula, arguments, self.sizes, self.algebra, self.callees, (*self.calling, name))
        try:
            values = inner.values()
        except Refusal as refusal:
            raise self.refuse(f"in {name}: {refusal.message}", node, refusal.hint) from refusal
        if len(values) != 1:
            raise self.refuse(f"{name} has {len(values)} values and cannot be called", node)
        return values[0]

    def _check_depth(self, name: str, node: ast.Call) -> None:
        if name in self.calling:
            raise self.refuse(f"recursive call: {' -> '.join((*self.calling, name))}", node)
        if len(self.calling) >= MAX_CALLS:
            raise self.refuse(f"calls nested deeper than {MAX_CALLS}: {' -> '.join((*self.calling, name))}", node)

    def _check_argument(self, name: str, variable: Variable, argument: Value[C], node: ast.AST) -> None:
        missing = [axis for axis in variable.axes if axis not in argument.axes]
        if missing:
            message = f"argument {variable.name} of {name} needs axis {missing[0]}, got {format_axes(argument.axes)}"
            raise self.refuse(message, node)
        expected = value_type(variable)
        if expected is not argument.type:
            message = f"argument {variable.name} of {name}: expected {expected.with_article}"
            raise self.refuse(f"{message}, got {argument.type.with_article}", node)


def _integer(node: ast.expr) -> int | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    return sign * node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
