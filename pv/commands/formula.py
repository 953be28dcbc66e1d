"""Finds a formula for the value of a function in its docstring, if it reads as an expression of the parameters."""

import ast
import re
from collections.abc import Iterator

MAX_CHARACTERS = 200
SPAN = re.compile(r"`+([^`]+)`+")
CALLS = {"exp", "log", "log1p", "expm1", "sqrt", "abs", "sin", "cos", "tanh", "sigmoid", "floor", "maximum", "minimum"}
CALLS |= {"min", "max", "clip"}
SYNONYMS = {"min": "minimum", "max": "maximum"}
"""Functions of Python that have another name in the language of equations."""
NODES = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call, ast.operator, ast.unaryop, ast.expr_context)


def formula(text: str, names: set[str]) -> str:
    """Return the first expression over `names` in a docstring, as an equation writes it; "" if there is none.

    Spans in backticks, what follows `=`, and what follows "Return" are read. One parameter alone is not a formula.
    """
    return next((found for each in _candidates(text) if (found := _expression(each, names))), "")


def _candidates(text: str) -> Iterator[str]:
    yield from (span.rpartition("=")[2] for span in SPAN.findall(text))
    for line in text.splitlines():
        for sentence in re.split(r"\.(?:\s|$)|[;:](?:\s|$)", line):
            yield re.split(r"(?<![<>=!])=(?!=)|^\s*Returns?\b", sentence)[-1]


def _expression(text: str, names: set[str]) -> str:
    try:
        node = ast.parse(text.replace("^", "**").strip()[:MAX_CHARACTERS], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    if not isinstance(node, ast.BinOp | ast.Call | ast.UnaryOp) or not _is_simple(node, names):
        return ""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            each.func.id = SYNONYMS.get(each.func.id, each.func.id)
    return ast.unparse(node)


def _is_simple(node: ast.expr, names: set[str]) -> bool:
    """Return whether a tree has only numbers, arithmetic, functions of the language, and names, at least one."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    functions = {id(each.func) for each in calls}
    plain = all(isinstance(each.func, ast.Name) and each.func.id in CALLS and not each.keywords for each in calls)
    used = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in functions]
    numbers = all(type(c.value) in (int, float) for c in ast.walk(node) if isinstance(c, ast.Constant))
    return plain and numbers and bool(used) and set(used) <= names and all(isinstance(e, NODES) for e in ast.walk(node))
