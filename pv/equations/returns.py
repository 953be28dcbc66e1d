"""The value in the object that the code returned: the key `returns`.

`sum / count`, `result["loss"]`, `result[0].mean`: the object is `result`, a bare name is an attribute of it, and
attributes, items and `+ - * /` of them are allowed. A bare name that the call passes as an array is that argument after
the call, for code that works in place: `param, momentum`.
"""

import ast
from collections.abc import Mapping
from typing import Any

from pv.equations.call import OPERATORS, parse_expression
from pv.equations.language import Formula
from pv.equations.refusal import Refusal

NO_ARRAYS: Mapping[str, Any] = {}
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_NODES = (
    *(ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Tuple),
    *(ast.operator, ast.unaryop, ast.expr_context),
)


def parse_returns(text: str, results: int) -> ast.expr:
    """Return the syntax tree of `returns`, which must have as many values as `results`. Raise `Refusal`."""
    tree, formula = parse_expression(text), Formula(text, ())
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if len(parts) != results:
        raise Refusal(f"declares {len(parts)} values, `result` declares {results}")
    items = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        _check(formula, node, is_item=id(node) in items)
    return tree


def _check(formula: Formula, node: ast.AST, *, is_item: bool) -> None:
    match node:
        case ast.Subscript(slice=index) if _item(index) is None:
            raise formula.refuse("expected an integer or a text in [ ]", node)
        case ast.Constant(value=value) if type(value) not in (int, float) and not is_item:
            raise formula.refuse(f"invalid literal {value!r}: expected a number", node)
        case ast.Attribute(attr=name) if name.startswith("_"):
            raise formula.refuse(f"private attribute {name!r}", node)
        case ast.BinOp(op=sign) if not isinstance(sign, _SIGNS):
            raise formula.refuse("unsupported operator: expected + - * /", node)
        case ast.UnaryOp(op=sign) if not isinstance(sign, ast.USub):
            raise formula.refuse("unsupported operator: expected + - * /", node)
    if not isinstance(node, _NODES):
        raise formula.refuse("unsupported syntax: expected attributes, items, and + - * /", node)


def _item(node: ast.expr) -> int | str | None:
    match node:
        case ast.Constant(value=int() | str() as item):
            return item
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as item)):
            return -item
    return None


def names(node: ast.expr) -> list[str]:
    """Return the bare names of a `returns` expression, in order."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def returned(node: ast.expr, result: Any, arrays: Mapping[str, Any] = NO_ARRAYS) -> Any:
    """Return the value of a `returns` expression for the object that the code returned, and its arrays after that."""

    def value(part: ast.expr) -> Any:
        return returned(part, result, arrays)

    match node:
        case ast.Name(id="result"):
            return result
        case ast.Name(id=name):
            return arrays[name] if name in arrays else _attribute(result, name)
        case ast.Attribute(value=inner, attr=name):
            return _attribute(value(inner), name)
        case ast.Subscript(value=inner, slice=index):
            return value(inner)[_item(index)]
        case ast.UnaryOp(operand=inner):
            return -value(inner)
        case ast.BinOp(left=left, op=sign, right=right):
            return OPERATORS[type(sign)](value(left), value(right))
        case ast.Tuple(elts=parts):
            return tuple(value(part) for part in parts)
        case ast.Constant(value=number):
            return number
        case _:
            raise AssertionError(f"parse_returns must refuse {ast.dump(node)}")


def _attribute(result: Any, name: str) -> Any:
    if isinstance(result, Mapping) and name in result and not hasattr(result, name):
        raise LookupError(f"the code returned a {type(result).__name__}: write `result[{name!r}]` in `returns`")
    return getattr(result, name)
