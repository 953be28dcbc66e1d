"""The call of the code: the keys `implemented_by` and `returns`.

`implemented_by: kd_loss(s, t, y, temperature=tau)`; arguments are variables, numbers, strings, `True`, `False`, `None`,
lists `[g, h]` and `zip(a, b)`, a list of pairs. `returns` is an expression over the returned object: `result`, its
attributes, items by number, and arithmetic of them.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pv.equations.language import Formula, syntax_refusal
from pv.equations.refusal import Refusal

MAX_CHARACTERS = 500
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_RETURNS_NODES = (
    ast.Name, ast.Constant, ast.BinOp, ast.Attribute, ast.Subscript, ast.Tuple, ast.operator, ast.expr_context,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed call: the dotted name of a function of the subject, and the syntax tree of the call."""

    function: str
    node: ast.Call
    text: str

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments for the given values of the variables."""
        return (
            [_argument(each, values) for each in self.node.args],
            {str(each.arg): _argument(each.value, values) for each in self.node.keywords},
        )


def parse_call(text: str, names: frozenset[str]) -> Call:
    """Return the call that `text` describes. Raise `Refusal` if it is no call or uses a name outside `names`."""
    tree = _parsed(text)
    formula = Formula(text, ())
    if not isinstance(tree, ast.Call):
        raise Refusal("expected a call, such as `kd_loss(s, t, temperature=tau)`")
    if not _is_path(tree.func):
        raise formula.refuse("invalid function: expected a dotted name", tree.func)
    for each in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        _check_argument(formula, each, names)
    if any(keyword.arg is None for keyword in tree.keywords):
        raise formula.refuse("unsupported syntax: ** in a call", tree)
    return Call(ast.unparse(tree.func), tree, text)


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"too long: {len(text)} characters, expected at most {MAX_CHARACTERS}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise syntax_refusal(error) from error


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and not node.attr.startswith("_") and _is_path(node.value)
    )


def _check_argument(formula: Formula, node: ast.expr, names: frozenset[str]) -> None:
    match node:
        case ast.Name(id=name):
            if name not in names:
                raise formula.refuse(f"unknown variable {name!r}", node, f"the domain has {', '.join(sorted(names))}")
        case (
            ast.Constant(value=bool() | int() | float() | str() | None)
            | ast.UnaryOp(op=ast.USub(), operand=ast.Constant())
        ):
            pass
        case ast.List(elts=parts) | ast.Call(func=ast.Name(id="zip"), args=parts, keywords=[]):
            for part in parts:
                _check_argument(formula, part, names)
        case _:
            raise formula.refuse("invalid argument: expected a variable, a literal, [a, b] or zip(a, b)", node)


def _argument(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.List(elts=parts):
            return [_argument(part, values) for part in parts]
        case ast.Call(args=parts):
            columns = [_argument(part, values).tolist() for part in parts]
            return list(zip(*columns, strict=True))
        case _:
            return ast.literal_eval(node)


def parse_returns(text: str, results: int) -> ast.expr:
    """Return the syntax tree of `returns`, which must have as many values as `results`. Raise `Refusal`."""
    tree, formula = _parsed(text), Formula(text, ())
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if len(parts) != results:
        raise Refusal(f"declares {len(parts)} values, `result` declares {results}")
    for node in ast.walk(tree):
        _check_returns(formula, node)
    return tree


def _check_returns(formula: Formula, node: ast.AST) -> None:
    match node:
        case ast.Subscript(slice=index) if not isinstance(index, ast.Constant):
            raise formula.refuse("expected an integer in [ ]", node)
        case ast.Constant(value=value) if type(value) not in (int, float):
            raise formula.refuse(f"invalid literal {value!r}: expected a number", node)
        case ast.Attribute(attr=name) if name.startswith("_"):
            raise formula.refuse(f"private attribute {name!r}", node)
        case ast.BinOp(op=sign) if type(sign) not in _OPERATORS:
            raise formula.refuse("unsupported operator: expected + - * /", node)
    if not isinstance(node, _RETURNS_NODES):
        raise formula.refuse("unsupported syntax: expected attributes, items by number, and + - * /", node)


def returned(node: ast.expr, result: Any) -> Any:
    """Return the value of a `returns` expression for the object that the code returned."""
    match node:
        case ast.Name(id="result"):
            return result
        case ast.Name(id=name):
            return getattr(result, name)
        case ast.Attribute(value=inner, attr=name):
            return getattr(returned(inner, result), name)
        case ast.Subscript(value=inner, slice=ast.Constant(value=index)):
            return returned(inner, result)[index]
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATORS[type(sign)](returned(left, result), returned(right, result))
        case ast.Tuple(elts=parts):
            return tuple(returned(part, result) for part in parts)
        case ast.Constant(value=number):
            return number
        case _:
            raise AssertionError(f"parse_returns must refuse {ast.dump(node)}")
