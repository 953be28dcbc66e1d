"""Walks a formula and holds it to the rules of axes and types; an algebra says what the contents of values are."""

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pv.equations.domain import MAX_ELEMENTS, Variable
from pv.equations.language import ALONG, ELEMENTWISE, FUNCTIONS, REDUCTIONS, Formula, Refusal
from pv.equations.values import CONDITION, INDEX, NUMBER, Algebra, Axes, Callee, Value
from pv.spelling import nearest

MAX_CALLS = 8
_ARITHMETIC = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.Pow: "power",
}  # fmt: skip
_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class Walk:
    """One walk over one formula. `sizes` holds the largest size of each axis; `callees` what can be called by name."""

    def __init__(
        self,
        formula: Formula,
        environment: Mapping[str, Value],
        sizes: Mapping[str, int],
        algebra: Algebra,
        callees: Mapping[str, Callee],
        calling: tuple[str, ...] = (),
    ) -> None:
        self.formula, self.environment, self.sizes = formula, dict(environment), sizes
        self.algebra, self.callees, self.calling = algebra, callees, calling

    def values(self) -> tuple[Value, ...]:
        """The values of the last line. Raises Refusal."""
        for line in self.formula.lines[:-1]:
            if line.name in self.sizes:
                raise self.formula.refuse(f"{line.name!r} is the name of an axis", line.value)
            self.environment[line.name] = self.value(line.value)
        last = self.formula.lines[-1].value
        return tuple(self.value(part) for part in (last.elts if isinstance(last, ast.Tuple) else [last]))

    def value(self, node: ast.expr) -> Value:
        """The value of one expression."""
        visit: Callable[[Any], Value] = getattr(self, f"_{type(node).__name__.lower()}")
        return visit(node)

    def _refuse(self, message: str, node: ast.AST) -> Refusal:
        return self.formula.refuse(message, node)

    def _constant(self, node: ast.Constant) -> Value:
        assert isinstance(node.value, int | float), "the parser lets only numbers through"
        return Value((), NUMBER, self.algebra.constant(float(node.value)))

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.environment:
            return self.environment[node.id]
        if node.id in self.sizes:
            return Value((), NUMBER, self.algebra.size(node.id))
        if node.id in ("pi", "inf"):
            return Value((), NUMBER, self.algebra.constant(math.pi if node.id == "pi" else math.inf))
        known = [*self.environment, *self.sizes]
        there = _meant(node.id, known) or f"there are {', '.join(known[:20]) or 'none'}"
        raise self._refuse(f"{node.id!r} is neither in the domain nor defined above; {there}", node)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            value = self._condition(node.operand)
            return Value(value.axes, CONDITION, self.algebra.exact("not", [value.content]))
        value = self._number(node.operand)
        return Value(value.axes, NUMBER, self.algebra.exact("negative", [value.content]))

    def _binop(self, node: ast.BinOp) -> Value:
        values = [self._number(node.left), self._number(node.right)]
        return self._elementwise(_ARITHMETIC[type(node.op)], values, node)

    def _compare(self, node: ast.Compare) -> Value:
        sides = [self._comparable(side) for side in (node.left, *node.comparators)]
        found: Value | None = None
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            one = self._exactly(_COMPARISONS[type(operator)], [left, right], node, CONDITION)
            found = one if found is None else self._exactly("and", [found, one], node, CONDITION)
        assert found is not None, "a comparison has two sides"
        return found

    def _boolop(self, node: ast.BoolOp) -> Value:
        name = "and" if isinstance(node.op, ast.And) else "or"
        found = self._condition(node.values[0])
        for each in node.values[1:]:
            found = self._exactly(name, [found, self._condition(each)], node, CONDITION)
        return found

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self._choose(node.test, node.body, node.orelse, node)

    def _tuple(self, node: ast.Tuple) -> Value:
        raise self._refuse("several values can only stand in the last line", node)

    def _choose(self, test: ast.expr, yes: ast.expr, no: ast.expr, node: ast.AST) -> Value:
        return self._exactly("where", [self._condition(test), self._number(yes), self._number(no)], node, NUMBER)

    def _subscript(self, node: ast.Subscript) -> Value:
        value = self.value(node.value)
        for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            value = self._indexed(value, index)
        return value

    def _indexed(self, value: Value, index: ast.expr) -> Value:
        literal = _whole_number(index)
        if literal is not None:
            if len(value.axes) != 1:
                raise self._refuse(f"a number picks where one axis is left, this has {_shown(value.axes)}", index)
            most = self.sizes[value.axes[0]]
            if not -most <= literal < most:
                raise self._refuse(f"there is no item {literal}: {value.axes[0]} has at most {most}", index)
            return Value((), value.type, self.algebra.select(value.content, 0, literal), value.of)
        which = self.value(index)
        if which.type != INDEX or which.of is None:
            raise self._refuse("only a whole number or an index can stand in [ ]", index)
        if which.of not in value.axes:
            raise self._refuse(f"an index of {which.of} cannot pick from axes {_shown(value.axes)}", index)
        rest = tuple(axis for axis in value.axes if axis != which.of)
        axes = self._union(index, rest, which.axes)
        content = self.algebra.pick(self.algebra.align(value, (*axes, which.of)), self.algebra.align(which, axes))
        return Value(axes, value.type, content, value.of)

    def _call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name):
            raise self._refuse("only functions of the language and equations can be called", node.func)
        name = node.func.id
        if name in ELEMENTWISE:
            self._arity(node, ELEMENTWISE[name])
            return self._elementwise(name, [self._number(each) for each in node.args], node)
        if name in REDUCTIONS:
            return self._reduction(name, node)
        if name in ALONG:
            return self._running(name, node)
        if name in self.callees:
            return self._equation(name, node)
        if name not in FUNCTIONS:
            meant = _meant(name, [*sorted(FUNCTIONS), *self.callees])
            raise self._refuse(f"there is no function and no equation {name!r}{meant and '; '}{meant}", node.func)
        return {"where": self._where, "one_hot": self._one_hot, "argmax": self._argmax, "top": self._top}[name](node)

    def _arity(self, node: ast.Call, count: int) -> None:
        assert isinstance(node.func, ast.Name)
        if len(node.args) != count or node.keywords:
            plural = "" if count == 1 else "s"
            raise self._refuse(f"{node.func.id} takes {count} argument{plural}, this has {len(node.args)}", node)

    def _where(self, node: ast.Call) -> Value:
        self._arity(node, 3)
        return self._choose(node.args[0], node.args[1], node.args[2], node)

    def _reduction(self, name: str, node: ast.Call) -> Value:
        value, axes = self._over(name, node)
        where = self._mask(name, node)
        if where is not None:
            union = self._union(node, value.axes, where.axes)
            if union != value.axes:
                value = Value(union, value.type, self.algebra.align(value, union))
        places = [value.axes.index(axis) for axis in axes]
        mask = self.algebra.align(where, value.axes) if where is not None else None
        rest = tuple(axis for axis in value.axes if axis not in axes)
        kind = CONDITION if name in ("any", "all") else NUMBER
        return Value(rest, kind, self.algebra.reduce(name, value.content, places, mask))

    def _over(self, name: str, node: ast.Call) -> tuple[Value, Axes]:
        if not node.args:
            raise self._refuse(f"{name} takes what to reduce, and over which axes", node)
        take = self._condition if name in ("any", "all", "count") else self._number
        value = take(node.args[0])
        return value, self._axes(value, node.args[1:], node)

    def _axes(self, value: Value, letters: Sequence[ast.expr], node: ast.AST) -> Axes:
        if not letters:
            if len(value.axes) != 1:
                raise self._refuse(f"over which axis? this has {_shown(value.axes)}", node)
            return value.axes
        axes = tuple(self._axis(letter, value) for letter in letters)
        for place, axis in enumerate(axes):
            if axis in axes[:place]:
                raise self._refuse(f"the axis {axis} stands twice", letters[place])
        return axes

    def _axis(self, letter: ast.expr, value: Value) -> str:
        if not isinstance(letter, ast.Name) or letter.id in self.environment or letter.id not in self.sizes:
            raise self._refuse("the letter of an axis must stand here", letter)
        if letter.id not in value.axes:
            raise self._refuse(f"there is no axis {letter.id}: this has {_shown(value.axes)}", letter)
        return letter.id

    def _mask(self, name: str, node: ast.Call) -> Value | None:
        extra = [keyword.arg for keyword in node.keywords if keyword.arg != "where"]
        if extra or len(node.keywords) > 1:
            raise self._refuse(f"{name} takes only where= by name", node)
        return self._condition(node.keywords[0].value) if node.keywords else None

    def _running(self, name: str, node: ast.Call) -> Value:
        if node.keywords:
            raise self._refuse(f"{name} takes nothing by name", node)
        value, axes = self._over(name, node)
        if len(axes) != 1:
            raise self._refuse(f"{name} goes along one axis", node)
        return Value(value.axes, NUMBER, self.algebra.along(name, value.content, value.axes.index(axes[0])))

    def _one_hot(self, node: ast.Call) -> Value:
        self._arity(node, 1)
        value = self.value(node.args[0])
        if value.type != INDEX or value.of is None or value.of in value.axes:
            raise self._refuse("one_hot takes an index", node.args[0])
        axes = self._union(node, value.axes, (value.of,))
        return Value(axes, NUMBER, self.algebra.one_hot(value.content, value.of))

    def _argmax(self, node: ast.Call) -> Value:
        value, axes = self._over("argmax", node)
        if len(axes) != 1 or node.keywords:
            raise self._refuse("argmax goes over one axis", node)
        rest = tuple(axis for axis in value.axes if axis != axes[0])
        return Value(rest, INDEX, self.algebra.argmax(value.content, value.axes.index(axes[0])), axes[0])

    def _top(self, node: ast.Call) -> Value:
        self._arity(node, 3)
        value = self._number(node.args[0])
        over, count = self._axis(node.args[1], value), node.args[2]
        if not isinstance(count, ast.Name) or count.id not in self.sizes or count.id in value.axes:
            raise self._refuse("top takes the letter of a size, how many it picks", count)
        rest = tuple(axis for axis in value.axes if axis != over)
        content = self.algebra.top(value.content, value.axes.index(over), count.id)
        return Value((*rest, count.id), INDEX, content, over)

    def _equation(self, name: str, node: ast.Call) -> Value:
        callee = self.callees[name]
        if name in self.calling or len(self.calling) >= MAX_CALLS:
            raise self._refuse(f"{name} calls itself, by way of {' and '.join(self.calling) or 'itself'}", node)
        names = [each for each, variable in callee.variables.items() if variable.kind != "size"]
        if len(node.args) != len(names) or node.keywords:
            raise self._refuse(f"{name} takes {', '.join(names)}", node)
        arguments = {each: self.value(argument) for each, argument in zip(names, node.args, strict=True)}
        for each, argument in arguments.items():
            self._fits(name, callee.variables[each], argument, node)
        inner = Walk(callee.formula, arguments, self.sizes, self.algebra, self.callees, (*self.calling, name))
        try:
            (value,) = inner.values()
        except Refusal as refusal:
            raise self._refuse(f"in {name}: {refusal.message}", node) from refusal
        except ValueError as error:
            raise self._refuse(f"{name} has several values", node) from error
        return value

    def _fits(self, name: str, variable: Variable, argument: Value, node: ast.AST) -> None:
        missing = [axis for axis in variable.axes if axis not in argument.axes]
        if missing:
            raise self._refuse(
                f"{name} needs axis {missing[0]} in {variable.name}, which has {_shown(argument.axes)}", node
            )
        wanted = INDEX if variable.kind == "index" else CONDITION if variable.kind == "mask" else NUMBER
        if wanted != argument.type:
            raise self._refuse(
                f"{name} takes {_article(wanted)} as {variable.name}, this is {_article(argument.type)}", node
            )

    def _elementwise(self, name: str, values: list[Value], node: ast.AST) -> Value:
        axes = self._union(node, *(value.axes for value in values))
        return Value(axes, NUMBER, self.algebra.elementwise(name, [self.algebra.align(v, axes) for v in values]))

    def _exactly(self, name: str, values: list[Value], node: ast.AST, kind: str) -> Value:
        axes = self._union(node, *(value.axes for value in values))
        return Value(axes, kind, self.algebra.exact(name, [self.algebra.align(v, axes) for v in values]))

    def _union(self, node: ast.AST, *parts: Axes) -> Axes:
        union = tuple(dict.fromkeys(axis for part in parts for axis in part))
        if math.prod(self.sizes[axis] for axis in union) > MAX_ELEMENTS:
            raise self._refuse(
                f"axes {_shown(union)} may hold more than {MAX_ELEMENTS} elements; bound their sizes", node
            )
        return union

    def _number(self, node: ast.expr) -> Value:
        """A number; a condition counts as 0 or 1."""
        value = self.value(node)
        if value.type == INDEX:
            raise self._refuse("an index is no number; compare it, pick with it, or one_hot it", node)
        return Value(value.axes, NUMBER, self.algebra.number(value.content)) if value.type == CONDITION else value

    def _condition(self, node: ast.expr) -> Value:
        value = self.value(node)
        if value.type != CONDITION:
            raise self._refuse(
                f"a condition must stand here, this is {_article(value.type)}; compare it with something", node
            )
        return value

    def _comparable(self, node: ast.expr) -> Value:
        value = self.value(node)
        return Value(value.axes, NUMBER, self.algebra.number(value.content))


def _whole_number(node: ast.expr) -> int | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    return sign * node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _shown(axes: Axes) -> str:
    return f"[{','.join(axes)}]"


def _article(kind: str) -> str:
    return f"an {kind}" if kind == INDEX else f"a {kind}"


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, list(known))
    return f"did you mean {near!r}?" if near else ""
