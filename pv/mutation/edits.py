"""The mutation operators on expressions: each yields the node to change and the source that replaces it."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

Change = tuple[ast.AST, str]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
BOUNDARIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ANY_ORDER = {"min", "max", "maximum", "minimum", "mul", "logaddexp", "hypot", "promote_types", "suppress"}
TAKES_TYPES = {"isinstance", "issubclass", "cast"}


def root(node: ast.AST) -> str:
    """Return the name at the root of an expression of attributes, calls and subscripts; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def changed_source(node: ast.AST, **changed: Any) -> str:
    fields: dict[str, Any] = dict(ast.iter_fields(node)) | changed
    return ast.unparse(ast.fix_missing_locations(type(node)(**fields)))


def _comparison(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            yield node, changed_source(node, ops=[*node.ops[:place], COMPARISONS[type(op)](), *node.ops[place + 1 :]])


def _arithmetic(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        yield node, changed_source(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.Not):
        if _is_literal(node):
            return  # -1 is a number as it stands: another one is put there
        yield node, ast.unparse(node.operand)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _logic(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        yield node, changed_source(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _condition(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    tests = [node.test] if isinstance(node, ast.IfExp) else node.ifs if isinstance(node, ast.comprehension) else []
    for test in tests:
        yield from negated(test)


def negated(test: ast.expr) -> Iterator[Change]:
    """Yield the negated condition, unless another operator does that already."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], BOUNDARIES)
    turned = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    if not single and not turned and not isinstance(test, ast.Constant):
        yield test, ast.unparse(ast.UnaryOp(op=ast.Not(), operand=test))


def _constant(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | float | int):
        yield from constants(node)
    elif isinstance(node, ast.Compare | ast.Subscript | ast.Dict):
        texts = [node.slice] if isinstance(node, ast.Subscript) else node.keys if isinstance(node, ast.Dict) else []
        texts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else texts
        for text in texts:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield from constants(text)


def constants(node: ast.AST) -> Iterator[Change]:
    """Yield another value of a literal: the other truth value, plus one, doubled, a longer text."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from constants(node.operand)
    match node:
        case ast.Constant(value=bool() as value):
            yield node, repr(not value)
        case ast.Constant(value=int() as value):
            yield node, repr(value + 1)
        case ast.Constant(value=float() as value):
            yield node, repr(value * 2 or 1.0)
        case ast.Constant(value=str() as value):
            yield node, repr(f"{value}~")


def _off_by_one(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    """Yield the end of a range or slice plus one, unless it is a literal."""
    ends: list[ast.expr | None] = []
    if isinstance(node, ast.Slice):
        ends = [node.lower, node.upper]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        ends = list(node.args[:2])
    for end in ends:
        if end is not None and not _is_literal(end) and not isinstance(end, ast.Starred):
            yield end, ast.unparse(ast.BinOp(left=end, op=ast.Add(), right=ast.Constant(1)))


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _swapped(node: ast.AST, _: frozenset[str]) -> Iterator[Change]:
    """Yield the call with two neighbouring arguments swapped."""
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    if ast.unparse(node.func).rpartition(".")[2] in (TAKES_TYPES | ANY_ORDER):
        return
    for place in range(len(node.args) - 1):
        args = list(node.args)
        args[place : place + 2] = [args[place + 1], args[place]]
        yield node, changed_source(node, args=args)


def _removed_call(node: ast.AST, foreign: frozenset[str]) -> Iterator[Change]:
    """Yield the object or argument of a call: `x` for `x.abs()` and for `abs(x)`."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute):
        if root(node.func) not in {*foreign, "self", "cls", "super", ""} and not isinstance(
            node.func.value, ast.Constant
        ):
            yield node, ast.unparse(node.func.value)
    elif isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        argument = node.args[0]
        if not node.func.id[0].isupper() and not isinstance(argument, ast.Starred | ast.GeneratorExp):
            yield node, ast.unparse(argument)


OPERATORS: dict[str, Callable[[ast.AST, frozenset[str]], Iterator[Change]]] = {
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "logic": _logic,
    "condition": _condition,
    "constant": _constant,
    "off by one": _off_by_one,
    "swapped arguments": _swapped,
    "removed call": _removed_call,
}
