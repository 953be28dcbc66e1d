"""The language of equations: Python's expression syntax, bounded, parsed into a tree that only `pv` ever walks.

An equation is lines `name = expression`, and a last line that is its value, or a tuple of values. Nothing of it is ever
given to `eval`: the nodes and functions below are all there is.
"""

import ast
import math
import operator
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_CHARACTERS = 2000
MAX_NODES = 400
MAX_DEPTH = 30
MAX_CONSTANT = 1e300

ELEMENTWISE = {
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "sqrt", "abs", "sin", "cos", "tanh", "sigmoid", "erf"), 1),
    **dict.fromkeys(("relu", "floor", "sign", "isfinite"), 1),
    **dict.fromkeys(("maximum", "minimum"), 2),
    "clip": 3,
}
"""Functions of numbers, element by element, and how many they take."""
REDUCTIONS = frozenset({"sum", "mean", "prod", "max", "min", "norm", "logsumexp", "count", "any", "all"})
ALONG = frozenset({"softmax", "log_softmax", "cumsum", "cumprod"})
OTHERS = frozenset({"where", "one_hot", "argmax", "top"})
FUNCTIONS = frozenset(ELEMENTWISE) | REDUCTIONS | ALONG | OTHERS
CONSTANTS = frozenset({"pi", "inf"})

_NODES = (
    *(ast.Module, ast.Assign, ast.Expr, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple),
    *(ast.Name, ast.Call, ast.keyword, ast.Constant, ast.Subscript, ast.expr_context, ast.operator, ast.unaryop),
    *(ast.cmpop, ast.boolop),
)
_ARITHMETIC: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_NO_OPERATORS = (
    *(ast.MatMult, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Invert, ast.UAdd),
    *(ast.Is, ast.IsNot, ast.In, ast.NotIn),
)


class Refusal(Exception):
    """Something that the language does not have, or that makes no sense; line and column in the expression, from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass(frozen=True, slots=True)
class Line:
    """`name = expression`; the value of the equation has no name."""

    name: str
    value: ast.expr


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed expression: its lines in order, the last of which is the value."""

    text: str
    lines: tuple[Line, ...]

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Line and column of a node, both from 1, in characters; `ast` counts UTF-8 bytes."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        source = self.text.split("\n")[line - 1] if line <= self.text.count("\n") + 1 else ""
        return line, len(source.encode()[:offset].decode(errors="ignore")) + 1

    def refuse(self, message: str, node: ast.AST) -> Refusal:
        return Refusal(message, *self.place(node))


def parse(text: str) -> Formula:
    """The formula of an expression. Raises Refusal with the place of what the language does not have."""
    _bound(text)
    try:
        tree = ast.parse(text, mode="exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "lineno", 1) or 1, getattr(error, "offset", 1) or 1
        raise Refusal(f"this is no expression: {getattr(error, 'msg', error)}", *place) from error
    draft = Formula(text, ())
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise Refusal(f"longer than {MAX_NODES} parts; name parts of it as equations of their own")
    for node in nodes:
        _check(draft, node)
    return Formula(text, _lines(draft, tree.body))


def _bound(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"longer than {MAX_CHARACTERS} characters; name parts of it as equations of their own")
    if unicodedata.normalize("NFKC", text) != text:
        raise Refusal("a character that Python reads as another one, such as a full-width letter; write the plain one")
    depth = 0
    for line, row in enumerate(text.split("\n"), 1):
        for column, character in enumerate(row, 1):
            if character in "#;":
                raise Refusal(
                    f"{character!r} is not part of the language; one line, one value, no comment", line, column
                )
            depth += (character in "([{") - (character in ")]}")
            if depth > MAX_DEPTH:
                raise Refusal(f"nested deeper than {MAX_DEPTH} brackets", line, column)


def _check(formula: Formula, node: ast.AST) -> None:
    if not isinstance(node, _NODES) or isinstance(node, _NO_OPERATORS):
        raise formula.refuse(f"{type(node).__name__} is not part of the language", node)
    if isinstance(node, ast.Constant) and not _is_finite_number(node.value):
        raise formula.refuse(f"{str(node.value)[:40]!r} is not a finite number", node)
    if isinstance(node, ast.BinOp) and not math.isfinite(_constant(node) or 0.0):
        raise formula.refuse(f"`{ast.unparse(node)[:40]}` is not a finite number", node)
    if isinstance(node, ast.Name) and "__" in node.id:
        raise formula.refuse("names with two underscores are refused", node)
    if isinstance(node, ast.keyword) and node.arg is None:
        raise formula.refuse("** is not part of the language", node)


def _is_finite_number(value: object) -> bool:
    return type(value) in (int, float) and isinstance(value, int | float) and abs(value) < MAX_CONSTANT


def _constant(node: ast.expr) -> float | None:
    """The value of an expression of numbers alone; infinite or NaN where it has none."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number) if abs(number) < MAX_CONSTANT else None  # it has its own refusal
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _constant(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            values = _constant(left), _constant(right)
            return None if values[0] is None or values[1] is None else _result(sign, values[0], values[1])
    return None


def _result(sign: ast.operator, left: float, right: float) -> float:
    try:
        result = _ARITHMETIC[type(sign)](left, right)
    except ArithmeticError:
        return math.inf
    return result if isinstance(result, float) else math.nan


def _lines(formula: Formula, body: list[ast.stmt]) -> tuple[Line, ...]:
    if not body or not isinstance(body[-1], ast.Expr):
        raise formula.refuse("the last line must be the value, without a name", body[-1] if body else ast.Pass())
    lines = [_named(formula, statement) for statement in body[:-1]]
    _no_inner_tuple(formula, body)
    return (*lines, Line("", body[-1].value))


def _named(formula: Formula, statement: ast.stmt) -> Line:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        raise formula.refuse("every line but the last reads `name = expression`", statement)
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        raise formula.refuse("every line but the last reads `name = expression`", target)
    if target.id in FUNCTIONS or target.id in CONSTANTS:
        raise formula.refuse(f"{target.id!r} has a meaning already", target)
    return Line(target.id, statement.value)


def _no_inner_tuple(formula: Formula, body: list[ast.stmt]) -> None:
    last = body[-1]
    top = last.value if isinstance(last, ast.Expr) else None
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Tuple) and node is not top and not _is_index(statement, node):
                raise formula.refuse("several values can only stand in the last line", node)


def _is_index(statement: ast.stmt, node: ast.Tuple) -> bool:
    return any(isinstance(each, ast.Subscript) and each.slice is node for each in ast.walk(statement))
