"""The grammar of equations: a bounded subset of Python's expression syntax, parsed and never executed.

An equation consists of lines `name = expression` and a last line that is its value, or several values with commas. The
language has only the syntax nodes and functions below. All other syntax is refused with its position and, for notation
of PyTorch and NumPy, with a hint on how to write it.
"""

import ast
import math
import operator
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pv.contract.wording import has_open_bracket


class Refusal(Exception):
    """The text of an equation is invalid.

    Attributes:
        message: The problem.
        line: The line of the problem in the text, from 1.
        column: The column of the problem, from 1.
        hint: How to correct the text; "" if no advice is known.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.line, self.column, self.hint = message, line, column, hint


class Part(StrEnum):
    """A key of an equation whose text can be invalid. `NAME` stands for the name of the equation, which is no key."""

    NAME = "name"
    DOMAIN = "domain"
    EXPRESSION = "expression"
    REQUIRES = "requires"
    INVARIANTS = "invariants"
    RESULT = "result"
    IMPLEMENTED_BY = "implemented_by"
    RETURNS = "returns"
    DERIVATIVE_OF = "derivative_of"


class InvalidEquation(Exception):
    """A key of an equation is invalid.

    Attributes:
        equation: The name of the equation.
        part: The key.
        refusal: The problem.
        item: The variable of `domain`, or the index of `invariants`; "" for other keys.
    """

    def __init__(self, equation: str, part: Part, refusal: Refusal, item: str = "") -> None:
        super().__init__(str(refusal))
        self.equation, self.part, self.refusal, self.item = equation, part, refusal, item

    @property
    def key(self) -> str:
        """Return the path from the equation to the text, such as `expression` or `domain/x`."""
        return f"{self.part}/{self.item}" if self.item else self.part.value


OPERATOR_MESSAGES: dict[type, tuple[str, str]] = {
    ast.MatMult: ("`@` is not supported", "write a matrix product over the shared axis D as `sum(x * w, D)`"),
    ast.BitAnd: ("`&` is not supported", "write `and`"),
    ast.BitOr: ("`|` is not supported", "write `or`"),
    ast.Invert: ("`~` is not supported", "write `not`"),
    ast.UAdd: ("a sign `+` is not supported", "leave it out"),
}
"""The message and the hint for refused operators. `unsupported` handles `^` and all other operators."""
# Names in code for PyTorch and NumPy that an equation has no use for: modules, sizes of arrays, changes of the layout.
MODULES = {"torch", "F", "nn", "functional", "math", "np", "numpy", "jnp", "jax", "special"}
SIZES = {"shape", "size", "numel", "ndim", "dim"}
LAYOUTS = {"T", "mT", "t", "transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "expand", "flatten"}


def unsupported(node: ast.AST) -> tuple[str, str]:
    """Return the message for refused syntax, and a hint on what to write instead; "" if there is no hint."""
    match node:
        case ast.BinOp(left=left, op=ast.BitXor(), right=right):
            return "`^` is not a power", f"did you mean `{_short(left)} ** {_short(right)}`?"
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) if type(op) in OPERATOR_MESSAGES:
            return OPERATOR_MESSAGES[type(op)]
        case ast.Attribute(attr=name):
            return _attribute(node, name)
        case ast.Slice():
            return "slices are not supported", "axes have names: select with an index, or `x[0]` if x has one axis"
        case ast.Constant(value=value) if value is ...:
            return "`...` is not supported", "axes have names: select with an index, or `x[0]` if x has one axis"
        case ast.Lambda() | ast.ListComp() | ast.GeneratorExp():
            return f"unsupported syntax: {type(node).__name__}", "operations are elementwise; reduce with `sum(x, D)`"
    return f"unsupported syntax: {type(node).__name__}", ""


def _attribute(node: ast.Attribute, name: str) -> tuple[str, str]:
    """Return the message and the hint for an attribute such as `x.shape` or `torch.exp`."""
    root = node.value
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in MODULES:
        return f"unknown name `{_short(node)}`", f"write `{name}` alone; functions and constants need no module"
    if name in SIZES:
        return f"`.{name}` is not supported", "the name of an axis is its size, as in `sqrt(D)`"
    if name in LAYOUTS:
        return f"`.{name}` is not supported", "leave it out: operands are combined by the names of their axes"
    return f"methods are not supported: `.{name}`", f"write `{name}(x, D)`, with the name of the axis if it reduces one"


def argument_for_axis(function: str, node: ast.expr) -> str:
    """Return a hint for an argument `node` where `function` needs an axis; "" if there is none.

    Two mistakes have a hint: `max(x, y)` for the larger of two values, and `sum(x, -1)` with the number of an axis.
    """
    is_axis = isinstance(node, ast.Name) and node.id[:1].isupper()
    if function in ("max", "min") and not is_axis:
        return f"`{function}` reduces over an axis; for two values use `{function}imum`"
    number = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(number, ast.Constant) and isinstance(number.value, int):
        return f"axes have names: write `{function}(x, D)`"
    return ""


def _short(node: ast.AST) -> str:
    return ast.unparse(node)[:40]


# Limits that keep parsing, checking and drawing cheap, whatever a contract contains.
MAX_CHARACTERS = 2000
MAX_NODES = 400
MAX_DEPTH = 30
MAX_CONSTANT = 1e300
SPLIT_HINT = "define parts of it as equations of their own"

# Every function of the language must exist in `tensors` and, for numbers without axes, in `scalars`.
ELEMENTWISE = {
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "sqrt", "abs", "sin", "cos", "tanh", "sigmoid", "erf"), 1),
    **dict.fromkeys(("relu", "floor", "sign", "isfinite"), 1),
    **dict.fromkeys(("maximum", "minimum"), 2),
    "clip": 3,
}
"""Elementwise functions with their number of arguments."""
REDUCTIONS = frozenset({"sum", "mean", "prod", "max", "min", "norm", "logsumexp", "count", "any", "all"})
"""Functions that remove axes."""
ALONG = frozenset({"softmax", "log_softmax", "cumsum", "cumprod"})
"""Functions along an axis that keep the axis."""
OTHERS = frozenset({"where", "one_hot", "argmax", "top"})
FUNCTIONS = frozenset(ELEMENTWISE) | REDUCTIONS | ALONG | OTHERS
CONSTANTS = frozenset({"pi", "inf"})

# The node types of the language. Operators that the language lacks, and their subclasses, are excluded below.
_NODES = (
    *(ast.Module, ast.Assign, ast.Expr, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple),
    *(ast.Name, ast.Call, ast.keyword, ast.Constant, ast.Subscript, ast.expr_context, ast.operator, ast.unaryop),
    *(ast.cmpop, ast.boolop),
)
ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_EXCLUDED_OPERATORS = (
    *(ast.MatMult, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Invert, ast.UAdd),
    *(ast.Is, ast.IsNot, ast.In, ast.NotIn),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line `name = expression`; the last line of an equation has no name."""

    name: str
    value: ast.expr


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed text, such as `expression` or `requires`: its lines in order. The last line is the value."""

    text: str
    lines: tuple[Line, ...]

    @property
    def called(self) -> tuple[str, ...]:
        """Return the names of the equations that the formula calls, without duplicates."""
        nodes = (node for line in self.lines for node in ast.walk(line.value))
        calls = (node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
        return tuple(dict.fromkeys(name for name in calls if name not in FUNCTIONS))

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Return the line and the column of a node, from 1. Columns are in characters; `ast` counts UTF-8 bytes."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        source = self.text.split("\n")[line - 1] if line <= self.text.count("\n") + 1 else ""
        return line, len(source.encode()[:offset].decode(errors="ignore")) + 1

    def refuse(self, message: str, node: ast.AST, hint: str = "") -> Refusal:
        """Return (do not raise) a refusal at the position of a node."""
        return Refusal(message, *self.place(node), hint=hint)


def parse(text: str) -> Formula:
    """Parse a text into a formula. Raise `Refusal` with the position of syntax that is not in the language."""
    _check_text(text)
    try:
        tree = ast.parse(text, mode="exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise syntax_refusal(error) from error
    # Check the size of the tree before its nodes: a text of 2000 characters can have a large tree.
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES:
        raise Refusal(f"too many syntax nodes: {len(nodes)}, expected at most {MAX_NODES}", hint=SPLIT_HINT)
    formula = Formula(text, ())  # without lines: `refuse` needs only the text, to compute positions
    for node in nodes:
        _check_node(formula, node)
    return Formula(text, _lines(formula, tree.body))


def syntax_refusal(error: Exception) -> Refusal:
    """Convert the error with which Python's parser rejects a text to a refusal."""
    line = getattr(error, "lineno", 1) or 1
    column = getattr(error, "offset", 1) or 1
    message = getattr(error, "msg", None) or str(error)
    source = getattr(error, "text", None) or ""
    # An open bracket usually means that the text is not quoted in a YAML flow collection, which splits it at a comma.
    hint = "quote it if it is inside [ ] or { }: YAML splits there at commas" if has_open_bracket(source) else ""
    return Refusal(f"not an expression: {message}", line, column, hint=hint)


def _check_text(text: str) -> None:
    """Raise `Refusal` for a text that is too long, has unsupported characters, or is nested too deep."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"too long: {len(text)} characters, expected at most {MAX_CHARACTERS}", hint=SPLIT_HINT)
    # Python normalises identifiers, so two names that look different could be the same name.
    if unicodedata.normalize("NFKC", text) != text:
        raise Refusal("unsupported compatibility character, such as a full-width letter", hint="use a plain character")
    # Check the depth before parsing, since deep nesting can exhaust the C stack of the parser.
    depth = 0
    for line, row in enumerate(text.split("\n"), 1):
        for column, character in enumerate(row, 1):
            if character in "#;":
                hint = "write one expression a line, without comments"
                raise Refusal(f"unsupported character {character!r}", line, column, hint=hint)
            if character in "([{":
                depth += 1
            elif character in ")]}":
                depth -= 1
            if depth > MAX_DEPTH:
                raise Refusal(f"brackets nested deeper than {MAX_DEPTH}", line, column)


def _check_node(formula: Formula, node: ast.AST) -> None:
    """Raise `Refusal` if a node is not in the language."""
    is_ellipsis = isinstance(node, ast.Constant) and node.value is ...
    if not isinstance(node, _NODES) or isinstance(getattr(node, "op", None), _EXCLUDED_OPERATORS) or is_ellipsis:
        message, hint = unsupported(node)
        raise formula.refuse(message, node, hint)
    if isinstance(node, ast.Compare) and any(isinstance(op, _EXCLUDED_OPERATORS) for op in node.ops):
        raise formula.refuse("unsupported comparison: expected < <= > >= == !=", node)
    if isinstance(node, ast.Constant) and not _is_finite_number(node.value):
        raise formula.refuse(f"invalid literal {str(node.value)[:40]!r}: expected a finite number", node)
    # Operations on literals must have a finite value, unlike `1 / 0`. They are evaluated in floats: with Python's
    # integers, `10 ** 10 ** 10` would not end.
    value = _constant_value(node) if isinstance(node, ast.BinOp) else None
    if value is not None and not math.isfinite(value):
        raise formula.refuse(f"`{ast.unparse(node)[:40]}` is not a finite number", node)
    if isinstance(node, ast.Name) and "__" in node.id:
        raise formula.refuse(f"invalid name {node.id[:40]!r}: double underscores are not allowed", node)
    if isinstance(node, ast.keyword) and node.arg is None:
        raise formula.refuse("unsupported syntax: ** in a call", node)


def _is_finite_number(value: object) -> bool:
    # `bool` is a subclass of `int`, but `True` is not in the language.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_CONSTANT


def _constant_value(node: ast.expr) -> float | None:
    """Return the value of an expression of literals; inf or NaN if it has no value, None if it has other operands."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number) if abs(number) < MAX_CONSTANT else None  # `_check_node` refuses the literal
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _constant_value(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            first, second = _constant_value(left), _constant_value(right)
            if first is None or second is None:
                return None
            try:
                result = ARITHMETIC[type(op)](first, second)
            except ArithmeticError:
                return math.inf
            return result if isinstance(result, float) else math.nan  # a root of a negative number is complex
    return None


def _lines(formula: Formula, body: list[ast.stmt]) -> tuple[Line, ...]:
    """Return the lines of an expression. Raise `Refusal` unless the last one is a value."""
    if not body or not isinstance(body[-1], ast.Expr):
        last = body[-1] if body else ast.Pass()  # has no position, so the refusal is at the first character
        raise formula.refuse("missing value: the last line must be an expression without a name", last)
    value = body[-1].value
    lines = [_assignment(formula, statement) for statement in body[:-1]]
    # A tuple is allowed as an index, as in x[i, j], and as the last line.
    nodes = [node for statement in body for node in ast.walk(statement)]
    indices = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
    for node in nodes:
        if isinstance(node, ast.Tuple) and node is not value and node not in indices:
            raise formula.refuse("several values are allowed only on the last line", node)
    return (*lines, Line("", value))


def _assignment(formula: Formula, statement: ast.stmt) -> Line:
    """Return a line `name = expression`. Raise `Refusal` for another statement, or a reserved name."""
    # Chained assignments `a = b = x` and tuple assignments are refused.
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        raise formula.refuse("expected `name = expression` on every line but the last", statement)
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        raise formula.refuse("expected `name = expression` on every line but the last", target)
    if target.id in FUNCTIONS or target.id in CONSTANTS:
        raise formula.refuse(f"reserved name {target.id!r}", target, "choose another name")
    return Line(target.id, statement.value)
