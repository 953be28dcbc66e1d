"""The rules of broadcasting and of types that every operation of the language follows.

Values are broadcast by axis name: the result has the union of the axes of the operands.
"""

import ast
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic

from pv.equations.domain import MAX_ELEMENTS
from pv.equations.habits import argument_for_axis
from pv.equations.language import Formula
from pv.equations.refusal import Refusal
from pv.equations.values import Algebra, Axes, C, Value, ValueType


class AxisRules(ABC, Generic[C]):
    """Evaluation of the operands of one formula, checked for axes and types.

    environment: the values of names. sizes: the largest size of each axis.
    """

    def __init__(
        self, formula: Formula, environment: Mapping[str, Value[C]], sizes: Mapping[str, int], algebra: Algebra[C]
    ) -> None:
        self.formula, self.environment, self.sizes, self.algebra = formula, dict(environment), sizes, algebra

    @abstractmethod
    def value(self, node: ast.expr) -> Value[C]:
        """Return the value of one expression. Raise `Refusal` if its axes or types do not fit."""

    def refuse(self, message: str, node: ast.AST, hint: str = "") -> Refusal:
        """Return a refusal at the position of a node."""
        return self.formula.refuse(message, node, hint)

    def number(self, node: ast.expr) -> Value[C]:
        """Return the value of an expression as a number; a condition counts as 0 or 1."""
        value = self.value(node)
        if value.type is ValueType.INDEX:
            raise self.refuse("expected a number, got an index", node, "compare it, select with it, or use one_hot")
        return self._as_number(value) if value.type is ValueType.CONDITION else value

    def condition(self, node: ast.expr) -> Value[C]:
        """Return the value of an expression, which must be a condition."""
        value = self.value(node)
        if value.type is not ValueType.CONDITION:
            raise self.refuse(f"expected a condition, got {value.type.with_article}", node, "compare it with a value")
        return value

    def comparable(self, node: ast.expr) -> Value[C]:
        """Return the value of an expression of any type as a number."""
        return self._as_number(self.value(node))

    def _as_number(self, value: Value[C]) -> Value[C]:
        return Value(value.axes, ValueType.NUMBER, self.algebra.number(value.content))

    def union(self, node: ast.AST, *parts: Axes) -> Axes:
        """Return all axes in order of appearance. Raise `Refusal` if their product may be too large."""
        union = tuple(dict.fromkeys(axis for part in parts for axis in part))
        if math.prod(self.sizes[axis] for axis in union) > MAX_ELEMENTS:
            message = f"axes {format_axes(union)} may have more than {MAX_ELEMENTS} elements"
            raise self.refuse(message, node, "declare smaller sizes, such as `V: size 2..64`")
        return union

    def elementwise(self, name: str, values: Sequence[Value[C]], node: ast.AST) -> Value[C]:
        """Apply a function of numbers, which rounds its result."""
        axes, contents = self._aligned(values, node)
        return Value(axes, ValueType.NUMBER, self.algebra.elementwise(name, contents))

    def exact(self, name: str, values: Sequence[Value[C]], node: ast.AST, kind: ValueType) -> Value[C]:
        """Apply a function whose result needs no rounding."""
        axes, contents = self._aligned(values, node)
        return Value(axes, kind, self.algebra.exact(name, contents))

    def _aligned(self, values: Sequence[Value[C]], node: ast.AST) -> tuple[Axes, list[C]]:
        axes = self.union(node, *(value.axes for value in values))
        return axes, [self.algebra.align(value, axes) for value in values]

    def choose(self, test: ast.expr, yes: ast.expr, no: ast.expr, node: ast.AST) -> Value[C]:
        """Return `yes` where `test` holds and `no` elsewhere."""
        operands = [self.condition(test), self.number(yes), self.number(no)]
        return self.exact("where", operands, node, ValueType.NUMBER)

    def axes(self, value: Value[C], names: Sequence[ast.expr], node: ast.AST, function: str) -> Axes:
        """Return the named axes of a value, or its only one if none is named."""
        if not names:
            if len(value.axes) != 1:
                raise self.refuse(f"missing axis: choose from {format_axes(value.axes)}", node)
            return value.axes
        axes = tuple(self.axis(name, value, argument_for_axis(function, name)) for name in names)
        for place, axis in enumerate(axes):
            if axis in axes[:place]:
                raise self.refuse(f"duplicate axis {axis}", names[place])
        return axes

    def axis(self, name: ast.expr, value: Value[C], habit: str = "") -> str:
        """Return the axis of a value that an expression names. habit: the hint if it is not an axis."""
        if not isinstance(name, ast.Name) or name.id in self.environment or name.id not in self.sizes:
            hint = f"the axes are {', '.join(value.axes) or 'none'}"
            raise self.refuse("expected the name of an axis", name, habit or hint)
        if name.id not in value.axes:
            raise self.refuse(f"unknown axis {name.id} in {format_axes(value.axes)}", name)
        return name.id


def format_axes(axes: Axes) -> str:
    """Return axes as they are written, such as `[B,T]`."""
    return f"[{','.join(axes)}]"
