"""`implemented_by`: the call of the code under contract, as an expression over the variables of the domain.

`kd_loss(s, t, y, temperature=tau)`; arguments are variables, numbers, `True`, `False`, `None`, lists `[g, h]` and
`zip(a, b)`, a list of pairs. `returns` is an expression over what came back: `result`, its attributes, items by number,
and arithmetic of them.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pv.equations.language import Formula, Refusal

MAX_CHARACTERS = 500
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed call: the name of a function below the subject, and what it is given."""

    function: str
    node: ast.Call
    text: str

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments, with `values` in the place of the variables."""
        return (
            [_argument(each, values) for each in self.node.args],
            {str(each.arg): _argument(each.value, values) for each in self.node.keywords},
        )


def parse_call(text: str, names: frozenset[str]) -> Call:
    """The call that `text` says. Raises Refusal: where it isn't one, or names what isn't in the domain."""
    tree = _parsed(text)
    formula = Formula(text, ())
    if not isinstance(tree, ast.Call):
        raise Refusal("expected a call, such as `kd_loss(s, t, temperature=tau)`")
    if not _is_path(tree.func):
        raise formula.refuse("the function must be a name, or a name with dots", tree.func)
    for each in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        _check_argument(formula, each, names)
    if any(keyword.arg is None for keyword in tree.keywords):
        raise formula.refuse("** is not part of a call here", tree)
    return Call(ast.unparse(tree.func), tree, text)


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"longer than {MAX_CHARACTERS} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "lineno", 1) or 1, getattr(error, "offset", 1) or 1
        raise Refusal(f"this is no expression: {getattr(error, 'msg', error)}", *place) from error


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and not node.attr.startswith("_") and _is_path(node.value)
    )


def _check_argument(formula: Formula, node: ast.expr, names: frozenset[str]) -> None:
    match node:
        case ast.Name(id=name):
            if name not in names:
                raise formula.refuse(f"{name!r} is not in the domain; it has {', '.join(sorted(names))}", node)
        case ast.Constant(value=bool() | int() | float() | None) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            pass
        case ast.List(elts=parts) | ast.Call(func=ast.Name(id="zip"), args=parts, keywords=[]):
            for part in parts:
                _check_argument(formula, part, names)
        case _:
            raise formula.refuse("an argument is a variable, a number, [a, b] or zip(a, b)", node)


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
    """What the results are in terms of `result`, or of its attributes by their bare name. Raises Refusal."""
    tree, formula = _parsed(text), Formula(text, ())
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if len(parts) != results:
        raise Refusal(f"gives {len(parts)} values, `result` declares {results}")
    for node in ast.walk(tree):
        allowed = (
            ast.Name,
            ast.Constant,
            ast.BinOp,
            ast.Attribute,
            ast.Subscript,
            ast.Tuple,
            ast.operator,
            ast.expr_context,
        )
        private = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if (
            not isinstance(node, allowed)
            or private
            or (isinstance(node, ast.BinOp) and type(node.op) not in _OPERATORS)
        ):
            raise formula.refuse("only attributes, items by number, and + - * / can stand here", node)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            raise formula.refuse("an item is picked by a whole number", node)
        if isinstance(node, ast.Constant) and type(node.value) not in (int, float):
            raise formula.refuse("only numbers can stand here", node)
    return tree


def returned(node: ast.expr, result: Any) -> Any:
    """The value of a `returns` expression for what the code returned."""
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
            raise AssertionError(f"parse_returns let {ast.dump(node)} through")
