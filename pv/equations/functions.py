"""The functions of the language: the arguments and axes that each takes, and the axes and type of its result."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from pv.contract.wording import count
from pv.equations.broadcast import AxisRules
from pv.equations.language import ALONG, ELEMENTWISE, REDUCTIONS
from pv.equations.values import Axes, C, Value, ValueType

_OF_CONDITIONS = frozenset({"any", "all", "count"})
_DIMENSIONS = frozenset({"dim", "axis", "keepdim", "keepdims"})


def apply(rules: AxisRules[C], name: str, node: ast.Call) -> Value[C]:
    """Return the value of the call `node` of the function `name`. Raise `Refusal` if the arguments do not fit."""
    if name in ELEMENTWISE:
        _check_arity(rules, name, node, ELEMENTWISE[name])
        return rules.elementwise(name, [rules.number(argument) for argument in node.args], node)
    if name in REDUCTIONS:
        return _reduction(rules, name, node)
    if name in ALONG:
        return _along(rules, name, node)
    function: Callable[[AxisRules[C], ast.Call], Value[C]] = _OTHERS[name]
    return function(rules, node)


def _check_arity(rules: AxisRules[C], name: str, node: ast.Call, arity: int) -> None:
    if node.keywords:
        raise rules.refuse(f"{name} accepts no keywords", node)
    if len(node.args) != arity:
        raise rules.refuse(f"{name} takes {count(arity, 'argument')}, got {len(node.args)}", node)


def _over(rules: AxisRules[C], name: str, node: ast.Call) -> tuple[Value[C], Axes]:
    """Return the first argument and the axes that the others name."""
    if not node.args:
        raise rules.refuse(f"missing argument: expected `{name}(x, AXIS)`", node)
    value = (rules.condition if name in _OF_CONDITIONS else rules.number)(node.args[0])
    return value, rules.axes(value, node.args[1:], node, name)


def _over_one(rules: AxisRules[C], name: str, node: ast.Call) -> tuple[Value[C], str]:
    if node.keywords:
        hint = f"name the axis: `{name}(x, D)`" if {keyword.arg for keyword in node.keywords} & _DIMENSIONS else ""
        raise rules.refuse(f"{name} accepts no keywords", node, hint)
    value, axes = _over(rules, name, node)
    if len(axes) != 1:
        raise rules.refuse(f"{name} takes one axis, got {len(axes)}", node)
    return value, axes[0]


def _reduction(rules: AxisRules[C], name: str, node: ast.Call) -> Value[C]:
    value, axes = _over(rules, name, node)
    where = _where_keyword(rules, name, node)
    if where is not None:
        union = rules.union(node, value.axes, where.axes)
        if union != value.axes:
            value = Value(union, value.type, rules.algebra.align(value, union))
    places = [value.axes.index(axis) for axis in axes]
    mask = rules.algebra.align(where, value.axes) if where is not None else None
    kind = ValueType.CONDITION if name in ("any", "all") else ValueType.NUMBER
    return Value(_without(value.axes, *axes), kind, rules.algebra.reduce(name, value.content, places, mask))


def _where_keyword(rules: AxisRules[C], name: str, node: ast.Call) -> Value[C] | None:
    extra = [keyword.arg for keyword in node.keywords if keyword.arg != "where"]
    if extra or len(node.keywords) > 1:
        hint = f"name the axis: `{name}(x, D)`" if set(extra) & _DIMENSIONS else ""
        raise rules.refuse(f"{name} accepts only the keyword `where`, once", node, hint)
    return rules.condition(node.keywords[0].value) if node.keywords else None


def _along(rules: AxisRules[C], name: str, node: ast.Call) -> Value[C]:
    value, axis = _over_one(rules, name, node)
    return Value(value.axes, ValueType.NUMBER, rules.algebra.along(name, value.content, value.axes.index(axis)))


def _where(rules: AxisRules[C], node: ast.Call) -> Value[C]:
    _check_arity(rules, "where", node, 3)
    return rules.choose(node.args[0], node.args[1], node.args[2], node)


def _one_hot(rules: AxisRules[C], node: ast.Call) -> Value[C]:
    _check_arity(rules, "one_hot", node, 1)
    value = rules.value(node.args[0])
    if value.type is not ValueType.INDEX or value.of is None:
        raise rules.refuse(f"one_hot takes an index, got {value.type.with_article}", node.args[0])
    if value.of in value.axes:
        raise rules.refuse(f"one_hot cannot add axis {value.of}: the index already has it", node.args[0])
    axes = rules.union(node, value.axes, (value.of,))
    return Value(axes, ValueType.NUMBER, rules.algebra.one_hot(value.content, value.of))


def _argmax(rules: AxisRules[C], node: ast.Call) -> Value[C]:
    value, axis = _over_one(rules, "argmax", node)
    content = rules.algebra.argmax(value.content, value.axes.index(axis))
    return Value(_without(value.axes, axis), ValueType.INDEX, content, axis)


def _top(rules: AxisRules[C], node: ast.Call) -> Value[C]:
    _check_arity(rules, "top", node, 3)
    value = rules.number(node.args[0])
    axis, count = rules.axis(node.args[1], value), node.args[2]
    if not isinstance(count, ast.Name) or count.id not in rules.sizes or count.id in value.axes:
        raise rules.refuse("top takes a size as third argument, such as K", count)
    content = rules.algebra.top(value.content, value.axes.index(axis), count.id)
    return Value((*_without(value.axes, axis), count.id), ValueType.INDEX, content, axis)


def _without(axes: Axes, *removed: str) -> Axes:
    return tuple(axis for axis in axes if axis not in removed)


_OTHERS: Mapping[str, Callable[[AxisRules[Any], ast.Call], Value[Any]]] = {
    "where": _where,
    "one_hot": _one_hot,
    "argmax": _argmax,
    "top": _top,
}
