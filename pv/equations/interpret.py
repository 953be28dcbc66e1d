"""The interpreter of formulas: computes the value of every node of a syntax tree with the operations of an algebra.

A value has named axes, a type, and a content. The algebra computes contents: with `NoContent` a formula is only
type-checked, without torch; with `Tensors` (see `tensors`) it is evaluated. Operands are broadcast by the names of
their axes: a result has the union of the axes of its operands.

The module contains, in order: values and algebras; the interpreter with its rules for axes and types; the functions of
the language.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from pv.contract.wording import count, did_you_mean
from pv.equations.domain import MAX_ELEMENTS, Kind, Variable, axis_bounds
from pv.equations.language import ALONG, ELEMENTWISE, FUNCTIONS, REDUCTIONS, Formula, Refusal, argument_for_axis

Axes = tuple[str, ...]
C = TypeVar("C")


class ValueType(StrEnum):
    """The type of the elements of a value."""

    NUMBER = "number"
    CONDITION = "condition"
    INDEX = "index"

    @property
    def with_article(self) -> str:
        return f"an {self}" if self is ValueType.INDEX else f"a {self}"


@dataclass(frozen=True, slots=True)
class Value(Generic[C]):
    """The value of an expression.

    Attributes:
        axes: The names of the axes, in the order of the dimensions of `content`.
        type: Number, condition or index.
        content: The object that the algebra computes, such as a tensor [runs, *axes].
        of: The axis that an index selects from; None for other types.
    """

    axes: Axes
    type: ValueType
    content: C
    of: str | None = None


class Algebra(Protocol[C]):
    """Operations on contents.

    The contents that one operation gets are aligned: they have the same axes in the same order, except in `pick`.
    `place` is the position of an axis in this order.

    * `constant`: the content of a literal; `size`: the size of an axis.
    * `align`: permute the axes of a value, and insert missing axes with size 1.
    * `number`: convert conditions and indices to numbers.
    * `elementwise`: apply a function that rounds its results; `exact`: apply one that does not.
    * `reduce`: apply a function that removes axes (sum, max) to the elements for which `where` is true; `along`: apply
      a function that keeps the axis (cumsum, softmax).
    * `select`: index an axis with a literal; `pick`: index the last axis of `content`, which `index` does not have.
    * `one_hot`: convert indices to 0 and 1 along a new last axis.
    * `argmax`, `top`: return the indices of the largest numbers.
    """

    def constant(self, number: float) -> C: ...
    def size(self, axis: str) -> C: ...
    def align(self, value: Value[C], axes: Axes) -> C: ...
    def number(self, content: C) -> C: ...
    def elementwise(self, name: str, contents: Sequence[C]) -> C: ...
    def exact(self, name: str, contents: Sequence[C]) -> C: ...
    def reduce(self, name: str, content: C, places: Sequence[int], where: C | None) -> C: ...
    def along(self, name: str, content: C, place: int) -> C: ...
    def select(self, content: C, place: int, index: int) -> C: ...
    def pick(self, content: C, index: C) -> C: ...
    def one_hot(self, index: C, axis: str) -> C: ...
    def argmax(self, content: C, place: int) -> C: ...
    def top(self, content: C, place: int, axis: str) -> C: ...


# Type check and evaluation use the same interpreter, so they cannot disagree about axes.
class NoContent:
    """The algebra of the type check: the content of every value is None."""

    def constant(self, number: float) -> None: ...
    def size(self, axis: str) -> None: ...
    def align(self, value: Value[None], axes: Axes) -> None: ...
    def number(self, content: None) -> None: ...
    def elementwise(self, name: str, contents: Sequence[None]) -> None: ...
    def exact(self, name: str, contents: Sequence[None]) -> None: ...
    def reduce(self, name: str, content: None, places: Sequence[int], where: None) -> None: ...
    def along(self, name: str, content: None, place: int) -> None: ...
    def select(self, content: None, place: int, index: int) -> None: ...
    def pick(self, content: None, index: None) -> None: ...
    def one_hot(self, index: None, axis: str) -> None: ...
    def argmax(self, content: None, place: int) -> None: ...
    def top(self, content: None, place: int, axis: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Callee:
    """An equation that other equations call by name."""

    formula: Formula
    variables: Mapping[str, Variable]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the names of the arguments of a call, in order: all variables except sizes."""
        return tuple(name for name, variable in self.variables.items() if variable.kind is not Kind.SIZE)

    @property
    def largest_sizes(self) -> dict[str, int]:
        """Return the largest size of each axis."""
        return {axis: high for axis, (_, high) in axis_bounds(self.variables).items()}


def value_type(variable: Variable) -> ValueType:
    """Return the type of the values of a variable."""
    return {Kind.INDEX: ValueType.INDEX, Kind.MASK: ValueType.CONDITION}.get(variable.kind, ValueType.NUMBER)


def variable_value(variable: Variable, content: C) -> Value[C]:
    """Return the value of a variable whose content is `content`."""
    return Value(variable.axes, value_type(variable), content, variable.of)


def format_axes(axes: Axes) -> str:
    """Return axes as they are written, such as `[B,T]`."""
    return f"[{','.join(axes)}]"


MAX_CALLS = 8
"""The largest number of equations in a chain of calls, such as `a` calls `b`, which calls `c`."""
_ARITHMETIC = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.Pow: "power",
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "inf": math.inf}
_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class Interpreter(Generic[C]):
    """Interprets one formula, and checks its axes and types.

    Args:
        formula: The formula.
        environment: The values of names.
        sizes: The largest size of each axis.
        algebra: Computes the contents of values.
        callees: The equations that the formula may call, by name.
        calling: The names of the equations that are being interpreted, the outermost first.
    """

    def __init__(
        self,
        formula: Formula,
        environment: Mapping[str, Value[C]],
        sizes: Mapping[str, int],
        algebra: Algebra[C],
        callees: Mapping[str, Callee],
        calling: tuple[str, ...] = (),
    ) -> None:
        self.formula, self.environment, self.sizes, self.algebra = formula, dict(environment), sizes, algebra
        self.callees, self.calling = callees, calling

    def values(self) -> tuple[Value[C], ...]:
        """Return the values of the last line. Raise `Refusal` if axes or types do not fit."""
        for line in self.formula.lines[:-1]:
            if line.name in self.sizes:
                raise self.refuse(f"{line.name!r} is already the name of an axis", line.value, "choose another name")
            # Later lines may use the value of this line by its name.
            self.environment[line.name] = self.value(line.value)
        last = self.formula.lines[-1].value
        return tuple(map(self.value, last.elts if isinstance(last, ast.Tuple) else [last]))

    def value(self, node: ast.expr) -> Value[C]:
        """Return the value of one expression. Raise `Refusal` if its axes or types do not fit."""
        # The parser admits only types of nodes that have a method here: `_binop` evaluates ast.BinOp.
        visit: Callable[[object], Value[C]] = getattr(self, f"_{type(node).__name__.lower()}")
        return visit(node)

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
        """Convert a value of any type to a number."""
        return Value(value.axes, ValueType.NUMBER, self.algebra.number(value.content))

    def union(self, node: ast.AST, *parts: Axes) -> Axes:
        """Return all axes in order of appearance. Raise `Refusal` if their product may be too large."""
        # Check the limit for the largest sizes, so that no drawn example can exhaust the memory.
        union = tuple(dict.fromkeys(axis for part in parts for axis in part))
        if math.prod(self.sizes[axis] for axis in union) > MAX_ELEMENTS:
            message = f"axes {format_axes(union)} may have more than {MAX_ELEMENTS} elements"
            raise self.refuse(message, node, "declare smaller sizes, such as `V: size 2..64`")
        return union

    def elementwise(self, name: str, values: Sequence[Value[C]], node: ast.AST) -> Value[C]:
        """Apply a function of numbers, which rounds its result."""
        axes, contents = self._align(values, node)
        return Value(axes, ValueType.NUMBER, self.algebra.elementwise(name, contents))

    def exact(self, name: str, values: Sequence[Value[C]], node: ast.AST, kind: ValueType) -> Value[C]:
        """Apply a function whose result needs no rounding."""
        axes, contents = self._align(values, node)
        return Value(axes, kind, self.algebra.exact(name, contents))

    def _align(self, values: Sequence[Value[C]], node: ast.AST) -> tuple[Axes, list[C]]:
        """Return the union of the axes of some values, and their contents aligned to it."""
        axes = self.union(node, *(value.axes for value in values))
        return axes, [self.algebra.align(value, axes) for value in values]

    def choose(self, test: ast.expr, yes: ast.expr, no: ast.expr, node: ast.AST) -> Value[C]:
        """Return `yes` where `test` holds and `no` elsewhere."""
        operands = [self.condition(test), self.number(yes), self.number(no)]
        return self.exact("where", operands, node, ValueType.NUMBER)

    def axes(self, value: Value[C], names: Sequence[ast.expr], node: ast.AST, function: str) -> Axes:
        """Resolve the axis arguments of a function.

        Args:
            value: The first argument of the function, which has the axes.
            names: The expressions of the axis arguments.
            node: The call, for the position of a refusal.
            function: The name of the function, for the hint.

        Returns:
            The named axes of the value, or its only axis if none is named.

        Raises:
            Refusal: An axis is unknown or duplicate, or no axis is named and the value does not have exactly one.
        """
        if not names:
            if len(value.axes) != 1:
                raise self.refuse(f"missing axis: choose from {format_axes(value.axes)}", node)
            return value.axes
        axes = tuple(self.axis(name, value, argument_for_axis(function, name)) for name in names)
        for place, axis in enumerate(axes):
            if axis in axes[:place]:
                raise self.refuse(f"duplicate axis {axis}", names[place])
        return axes

    def axis(self, name: ast.expr, value: Value[C], hint: str = "") -> str:
        """Return the axis of a value that an expression names.

        Args:
            name: The expression.
            value: The value that has the axis.
            hint: The hint if the expression is not the name of an axis; "" to list the axes.
        """
        if not isinstance(name, ast.Name) or name.id in self.environment or name.id not in self.sizes:
            hint = hint or f"the axes are {', '.join(value.axes) or 'none'}"
            raise self.refuse("expected the name of an axis", name, hint)
        if name.id not in value.axes:
            raise self.refuse(f"unknown axis {name.id} in {format_axes(value.axes)}", name)
        return name.id

    def _constant(self, node: ast.Constant) -> Value[C]:
        assert isinstance(node.value, int | float), "the parser admits only numbers"
        return Value((), ValueType.NUMBER, self.algebra.constant(float(node.value)))

    def _name(self, node: ast.Name) -> Value[C]:
        if node.id in self.environment:
            return self.environment[node.id]
        if node.id in self.sizes:
            return Value((), ValueType.NUMBER, self.algebra.size(node.id))
        if node.id in _CONSTANTS:
            return Value((), ValueType.NUMBER, self.algebra.constant(_CONSTANTS[node.id]))
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
        # `a < b < c` means `a < b and b < c`, as in Python.
        conditions = [
            self.exact(_COMPARISONS[type(operator)], [left, right], node, ValueType.CONDITION)
            for operator, left, right in zip(node.ops, sides, sides[1:], strict=False)
        ]
        return self._connect("and", conditions, node)

    def _boolop(self, node: ast.BoolOp) -> Value[C]:
        name = "and" if isinstance(node.op, ast.And) else "or"
        return self._connect(name, list(map(self.condition, node.values)), node)

    def _connect(self, name: str, conditions: Sequence[Value[C]], node: ast.AST) -> Value[C]:
        """Return conditions connected by "and" or "or"."""
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.exact(name, [result, condition], node, ValueType.CONDITION)
        return result

    def _ifexp(self, node: ast.IfExp) -> Value[C]:
        return self.choose(node.test, node.body, node.orelse, node)

    def _tuple(self, node: ast.Tuple) -> Value[C]:
        raise self.refuse("several values are allowed only on the last line", node)

    def _subscript(self, node: ast.Subscript) -> Value[C]:
        value = self.value(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in indices:
            literal = _integer(index)
            value = self._pick(value, index) if literal is None else self._select(value, literal, index)
        return value

    def _select(self, value: Value[C], index: int, node: ast.expr) -> Value[C]:
        """Return the element of a value with one axis at a literal index."""
        if len(value.axes) != 1:
            raise self.refuse(f"a literal index needs exactly one axis, got {format_axes(value.axes)}", node)
        largest = self.sizes[value.axes[0]]
        if not -largest <= index < largest:
            raise self.refuse(f"index {index} is out of range: {value.axes[0]} has at most {largest} elements", node)
        return Value((), value.type, self.algebra.select(value.content, 0, index), value.of)

    def _pick(self, value: Value[C], node: ast.expr) -> Value[C]:
        """Return the elements of a value that an expression of type index selects."""
        index = self.value(node)
        if index.type is not ValueType.INDEX or index.of is None:
            raise self.refuse(f"expected an integer or an index in [ ], got {index.type.with_article}", node)
        if index.of not in value.axes:
            raise self.refuse(f"an index of {index.of} cannot select from axes {format_axes(value.axes)}", node)
        rest = tuple(axis for axis in value.axes if axis != index.of)
        # The selected axis is removed, and the axes of the index are added: if x has the axes [B,V], and i is an index
        # of V with the axes [B,T], then x[i] has the axes [B,T].
        axes = self.union(node, rest, index.axes)
        content = self.algebra.pick(self.algebra.align(value, (*axes, index.of)), self.algebra.align(index, axes))
        return Value(axes, value.type, content, value.of)

    def _call(self, node: ast.Call) -> Value[C]:
        if not isinstance(node.func, ast.Name):
            raise self.refuse("only functions and equations can be called", node.func)
        name = node.func.id
        if name in FUNCTIONS:
            return apply_function(self, name, node)
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
        # The callee does not see the variables of the caller.
        inner = Interpreter(callee.formula, arguments, self.sizes, self.algebra, self.callees, (*self.calling, name))
        try:
            values = inner.values()
        except Refusal as refusal:
            raise self.refuse(f"in {name}: {refusal.message}", node, refusal.hint) from refusal
        if len(values) != 1:
            raise self.refuse(f"{name} has {len(values)} values and cannot be called", node)
        return values[0]

    def _check_depth(self, name: str, node: ast.Call) -> None:
        """Raise `Refusal` if the call of an equation is recursive, or nested deeper than `MAX_CALLS`."""
        # If every equation calls the next one twice, 2**depth evaluations are needed, so the depth is limited too.
        if name in self.calling:
            raise self.refuse(f"recursive call: {' -> '.join((*self.calling, name))}", node)
        if len(self.calling) >= MAX_CALLS:
            raise self.refuse(f"calls nested deeper than {MAX_CALLS}: {' -> '.join((*self.calling, name))}", node)

    def _check_argument(self, name: str, variable: Variable, argument: Value[C], node: ast.AST) -> None:
        """Raise `Refusal` if an argument of an equation lacks an axis of its variable, or has another type."""
        missing = [axis for axis in variable.axes if axis not in argument.axes]
        if missing:
            message = f"argument {variable.name} of {name} needs axis {missing[0]}, got {format_axes(argument.axes)}"
            raise self.refuse(message, node)
        expected = value_type(variable)
        if expected is not argument.type:
            message = f"argument {variable.name} of {name}: expected {expected.with_article}"
            raise self.refuse(f"{message}, got {argument.type.with_article}", node)


_CONDITION_REDUCTIONS = frozenset({"any", "all", "count"})
_AXIS_KEYWORDS = frozenset({"dim", "axis", "keepdim", "keepdims"})


def apply_function(interpreter: Interpreter[C], name: str, node: ast.Call) -> Value[C]:
    """Return the value of a call of a function of the language.

    Args:
        interpreter: Evaluates the arguments.
        name: The name of the function, one of `FUNCTIONS`.
        node: The call.

    Returns:
        The value, with its axes and type.

    Raises:
        Refusal: The number, types or axes of the arguments do not fit.
    """
    if name in ELEMENTWISE:
        _check_arity(interpreter, name, node, ELEMENTWISE[name])
        return interpreter.elementwise(name, [interpreter.number(argument) for argument in node.args], node)
    if name in REDUCTIONS:
        return _reduction(interpreter, name, node)
    if name in ALONG:
        return _axis_function(interpreter, name, node)
    function: Callable[[Interpreter[C], ast.Call], Value[C]] = _OTHER_FUNCTIONS[name]
    return function(interpreter, node)


def _check_arity(interpreter: Interpreter[C], name: str, node: ast.Call, arity: int) -> None:
    if node.keywords:
        raise interpreter.refuse(f"{name} accepts no keywords", node)
    if len(node.args) != arity:
        raise interpreter.refuse(f"{name} takes {count(arity, 'argument')}, got {len(node.args)}", node)


def _value_and_axes(interpreter: Interpreter[C], name: str, node: ast.Call) -> tuple[Value[C], Axes]:
    """Return the value of the first argument, and its axes that the other arguments name (or its only axis)."""
    if not node.args:
        raise interpreter.refuse(f"missing argument: expected `{name}(x, AXIS)`", node)
    # any, all and count take conditions only: if the argument is a number, a comparison was probably forgotten.
    evaluate = interpreter.condition if name in _CONDITION_REDUCTIONS else interpreter.number
    value = evaluate(node.args[0])
    return value, interpreter.axes(value, node.args[1:], node, name)


def _value_and_axis(interpreter: Interpreter[C], name: str, node: ast.Call) -> tuple[Value[C], str]:
    """Return the value of the first argument, and its axis that the second argument names (or its only axis)."""
    if node.keywords:
        hint = f"name the axis: `{name}(x, D)`" if {keyword.arg for keyword in node.keywords} & _AXIS_KEYWORDS else ""
        raise interpreter.refuse(f"{name} accepts no keywords", node, hint)
    value, axes = _value_and_axes(interpreter, name, node)
    if len(axes) != 1:
        raise interpreter.refuse(f"{name} takes one axis, got {len(axes)}", node)
    return value, axes[0]


def _reduction(interpreter: Interpreter[C], name: str, node: ast.Call) -> Value[C]:
    """Return the value of a function that removes axes, such as `sum(x, D, where=m)`."""
    value, axes = _value_and_axes(interpreter, name, node)
    where, mask = _where_keyword(interpreter, name, node), None
    if where is not None:
        # The condition may have axes that the value lacks: the value is broadcast along these axes.
        union = interpreter.union(node, value.axes, where.axes)
        value = Value(union, value.type, interpreter.algebra.align(value, union))
        mask = interpreter.algebra.align(where, union)
    places = [value.axes.index(axis) for axis in axes]
    kind = ValueType.CONDITION if name in ("any", "all") else ValueType.NUMBER
    return Value(_without(value.axes, *axes), kind, interpreter.algebra.reduce(name, value.content, places, mask))


def _where_keyword(interpreter: Interpreter[C], name: str, node: ast.Call) -> Value[C] | None:
    """Return the condition of the keyword `where`; None without one. Raise `Refusal` for other keywords."""
    extra = [keyword.arg for keyword in node.keywords if keyword.arg != "where"]
    if extra or len(node.keywords) > 1:
        hint = f"name the axis: `{name}(x, D)`" if set(extra) & _AXIS_KEYWORDS else ""
        raise interpreter.refuse(f"{name} accepts only the keyword `where`, once", node, hint)
    return interpreter.condition(node.keywords[0].value) if node.keywords else None


def _axis_function(interpreter: Interpreter[C], name: str, node: ast.Call) -> Value[C]:
    """Return the value of a function that keeps its axis, such as `softmax(x, D)`."""
    value, axis = _value_and_axis(interpreter, name, node)
    return Value(value.axes, ValueType.NUMBER, interpreter.algebra.along(name, value.content, value.axes.index(axis)))


def _where_function(interpreter: Interpreter[C], node: ast.Call) -> Value[C]:
    _check_arity(interpreter, "where", node, 3)
    return interpreter.choose(node.args[0], node.args[1], node.args[2], node)


def _one_hot(interpreter: Interpreter[C], node: ast.Call) -> Value[C]:
    """Return 1 at the index and 0 elsewhere, along the axis that the index selects from."""
    _check_arity(interpreter, "one_hot", node, 1)
    value = interpreter.value(node.args[0])
    if value.type is not ValueType.INDEX or value.of is None:
        raise interpreter.refuse(f"one_hot takes an index, got {value.type.with_article}", node.args[0])
    # Refuse a second axis of the same name, since broadcasting by name could not distinguish the two.
    if value.of in value.axes:
        raise interpreter.refuse(f"one_hot cannot add axis {value.of}: the index already has it", node.args[0])
    axes = interpreter.union(node, value.axes, (value.of,))
    return Value(axes, ValueType.NUMBER, interpreter.algebra.one_hot(value.content, value.of))


def _argmax(interpreter: Interpreter[C], node: ast.Call) -> Value[C]:
    """Return the index of the largest element along an axis."""
    value, axis = _value_and_axis(interpreter, "argmax", node)
    content = interpreter.algebra.argmax(value.content, value.axes.index(axis))
    return Value(_without(value.axes, axis), ValueType.INDEX, content, axis)


def _top(interpreter: Interpreter[C], node: ast.Call) -> Value[C]:
    """Return the indices of the K largest elements along an axis, for `top(x, D, K)`."""
    _check_arity(interpreter, "top", node, 3)
    value = interpreter.number(node.args[0])
    axis, size = interpreter.axis(node.args[1], value), node.args[2]
    # The number of elements must be a declared size, so that the axis of the result has a name and a bound.
    if not isinstance(size, ast.Name) or size.id not in interpreter.sizes or size.id in value.axes:
        raise interpreter.refuse("top takes a size as third argument, such as K", size)
    content = interpreter.algebra.top(value.content, value.axes.index(axis), size.id)
    return Value((*_without(value.axes, axis), size.id), ValueType.INDEX, content, axis)


def _without(axes: Axes, *removed: str) -> Axes:
    return tuple(axis for axis in axes if axis not in removed)


_OTHER_FUNCTIONS: Mapping[str, Callable[[Interpreter[Any], ast.Call], Value[Any]]] = {
    "where": _where_function,
    "one_hot": _one_hot,
    "argmax": _argmax,
    "top": _top,
}


def _integer(node: ast.expr) -> int | None:
    """Return the value of an integer literal, which may be negative; None for another expression."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    return sign * node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
