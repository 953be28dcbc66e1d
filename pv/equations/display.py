"""Equations for people, as text and as LaTeX, generated from the syntax trees that `pv` evaluates.

Brackets are written wherever a weaker operator is inside a stronger one. Few different trees give the same LaTeX,
such as `a if c else b` and `where(c, a, b)`, or the names `x0` and `x_0`.
"""

import ast
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping

from pv.equations.language import REDUCTIONS, Formula
from pv.equations.parse import Definition


def text(equation: Definition, unit: str) -> Iterator[str]:
    """Yield the lines that show an equation.

    Args:
        equation: The equation.
        unit: The unit of the value of the equation; "" for none.
    """
    yield f"  {equation.name}" + (f"  [{unit}]" if unit else "")
    for line in equation.formula.lines:
        parts = line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
        yield f"      {line.name or equation.name} = {', '.join(map(ast.unparse, parts))}"
    for invariant in equation.invariants:
        yield f"      always {ast.unparse(invariant.lines[-1].value)}"
    if equation.requires is not None:
        yield f"      where {ast.unparse(equation.requires.lines[-1].value)}"
    if equation.derivative is not None:
        yield f"      the derivative of {equation.derivative.equation} by {equation.derivative.variable}"
    if equation.call is not None:
        yield f"      code: {equation.call.text}"


OR, AND, NOT, COMPARISON, SUM, PRODUCT, POWER, ATOM = range(8)
"""Binding strengths; an expression that binds less strongly than its position requires is written in brackets."""
GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega".split()
)
_SIGNS: Mapping[type, tuple[int, str]] = {
    ast.Add: (SUM, "+"), ast.Sub: (SUM, "-"), ast.Mult: (PRODUCT, r"\cdot"), ast.Mod: (PRODUCT, r"\bmod"),
}  # fmt: skip
_COMPARISONS: Mapping[type, str] = {
    ast.Lt: "<", ast.LtE: r"\le", ast.Gt: ">", ast.GtE: r"\ge", ast.Eq: "=", ast.NotEq: r"\ne",
}  # fmt: skip
# Functions that are written as brackets, as an upright LaTeX command, or as a large operator.
_DELIMITERS = {"abs": (r"\lvert", r"\rvert"), "floor": (r"\lfloor", r"\rfloor")}
_PLAIN = frozenset({"exp", "log", "sin", "cos", "tanh"})
_BIG = {"sum": r"\sum", "prod": r"\prod"}


def latex(name: str, formula: Formula) -> str:
    """Return the formula as an `aligned` environment with one row per line; the last row defines `name`."""
    rows = [f"{_name(line.name or name)} &= {_with_commas(line.value)}" for line in formula.lines]
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def _with_commas(node: ast.expr) -> str:
    """Return the LaTeX of the parts of a tuple, with commas, or of a single expression."""
    return r",\; ".join(_tex(part) for part in node.elts) if isinstance(node, ast.Tuple) else _tex(node)


def _tex(node: ast.expr, least: int = OR) -> str:
    """Return the LaTeX of an expression, in brackets if the expression binds less than `least`."""
    write: Callable[[ast.expr], tuple[int, str]] = _WRITERS[type(node)]
    level, text = write(node)
    return text if level >= least else rf"\left({text}\right)"


def _constant(node: ast.Constant) -> tuple[int, str]:
    mantissa, _, exponent = repr(node.value).partition("e")
    if not exponent:
        return ATOM, mantissa
    power = f"10^{{{int(exponent)}}}"
    return (POWER, power) if mantissa == "1" else (PRODUCT, rf"{mantissa} \cdot {power}")


def _variable(node: ast.Name) -> tuple[int, str]:
    return ATOM, r"\infty" if node.id == "inf" else _name(node.id)


def _name(name: str) -> str:
    """Return `tau` as a Greek letter, `x_0` and `x0` with an index, `m_hat` with a hat, and words upright."""
    base, _, index = name.partition("_")
    if not index and (numbered := re.fullmatch(r"(\D+)(\d+)", name)):
        base, index = numbered.groups()
    letter = _letter(base)
    if letter is None or not index:
        return letter or rf"\mathrm{{{_escape(name)}}}"
    return rf"\hat{{{letter}}}" if index == "hat" else rf"{letter}_{{\mathrm{{{_escape(index)}}}}}"


def _letter(name: str) -> str | None:
    if name in GREEK:
        return rf"\{name}"
    if len(name) != 1:
        return None
    # For a Greek character, such as U+03B1 (alpha), the last word of the Unicode name is the name of the letter.
    *_, last = unicodedata.name(name, "").lower().split()
    return rf"\{last}" if name.islower() and last in GREEK else name


def _escape(name: str) -> str:
    return name.replace("_", r"\_")


def _unary(node: ast.UnaryOp) -> tuple[int, str]:
    if isinstance(node.op, ast.Not):
        return NOT, rf"\lnot {_tex(node.operand, COMPARISON)}"
    return SUM, f"-{_tex(node.operand, PRODUCT)}"


def _binary(node: ast.BinOp) -> tuple[int, str]:
    """Return the binding strength and the LaTeX of an operation."""
    if isinstance(node.op, ast.Pow):
        return POWER, f"{_tex(node.left, ATOM)}^{{{_tex(node.right)}}}"
    if isinstance(node.op, ast.Div | ast.FloorDiv):
        quotient = rf"\frac{{{_tex(node.left)}}}{{{_tex(node.right)}}}"
        return POWER, quotient if isinstance(node.op, ast.Div) else rf"\left\lfloor {quotient} \right\rfloor_{{\div}}"
    level, sign = _SIGNS[type(node.op)]
    if isinstance(node.op, ast.Mult) and not isinstance(node.right, ast.Constant):
        sign = r"\,"
    # Operators associate to the left: a - (b - c) needs its brackets, (a - b) - c does not.
    return level, f"{_tex(node.left, level)} {sign} {_tex(node.right, level + 1)}"


def _comparison(node: ast.Compare) -> tuple[int, str]:
    rest = zip(node.ops, node.comparators, strict=True)
    sides = "".join(f" {_COMPARISONS[type(sign)]} {_tex(side, SUM)}" for sign, side in rest)
    return COMPARISON, _tex(node.left, SUM) + sides


def _boolean(node: ast.BoolOp) -> tuple[int, str]:
    level, sign = (AND, r"\land") if isinstance(node.op, ast.And) else (OR, r"\lor")
    return level, f" {sign} ".join(_tex(operand, level + 1) for operand in node.values)


def _cases(test: ast.expr, yes: ast.expr, no: ast.expr) -> tuple[int, str]:
    rows = rf"{_tex(yes)} & \text{{if }} {_tex(test)} \\ {_tex(no)} & \text{{otherwise}}"
    return SUM, rf"\begin{{cases}} {rows} \end{{cases}}"


def _selection(node: ast.Subscript) -> tuple[int, str]:
    return POWER, rf"{_tex(node.value, POWER)}\left[{_with_commas(node.slice)}\right]"


def _call(node: ast.Call) -> tuple[int, str]:
    """Return the binding strength and the LaTeX of a call."""
    assert isinstance(node.func, ast.Name), "the parser admits only calls of names"
    name, first = node.func.id, node.args[0]
    if name == "where":
        return _cases(*node.args)
    if name == "sqrt":
        return POWER, rf"\sqrt{{{_tex(first)}}}"
    if name in _DELIMITERS:
        left, right = _DELIMITERS[name]
        return ATOM, rf"\left{left} {_tex(first)} \right{right}"
    if name in _BIG:
        return SUM, f"{_BIG[name]}{_axes_and_condition(node)} {_tex(first, PRODUCT)}"
    if name in REDUCTIONS or name in ("softmax", "log_softmax", "cumsum", "cumprod", "argmax"):
        return POWER, rf"{_operator(name)}{_axes_and_condition(node)}\left({_tex(first)}\right)"
    if name in ("maximum", "minimum"):
        name = name[:3]  # `max` or `min`, written with several arguments
    arguments = r",\, ".join(_tex(argument) for argument in node.args)
    return POWER, rf"{_operator(name)}\left({arguments}\right)"


def _operator(name: str) -> str:
    return rf"\{name}" if name in _PLAIN or name in ("max", "min") else rf"\operatorname{{{_escape(name)}}}"


def _axes_and_condition(node: ast.Call) -> str:
    """Return the axes of a reduction and its `where` condition, as an index."""
    parts = [",".join(_tex(axis) for axis in node.args[1:]), *(_tex(keyword.value) for keyword in node.keywords)]
    if not any(parts):
        return ""
    return f"_{{{parts[0]}}}" if len(parts) == 1 else rf"_{{{parts[0]} \,:\, {parts[1]}}}"


_WRITERS: Mapping[type, Callable[..., tuple[int, str]]] = {
    ast.Constant: _constant,
    ast.Name: _variable,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _comparison,
    ast.BoolOp: _boolean,
    ast.IfExp: lambda node: _cases(node.test, node.body, node.orelse),
    ast.Subscript: _selection,
    ast.Call: _call,
}
