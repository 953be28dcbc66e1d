"""Finds code by its syntax tree, so that formatting and comments never matter. Standard library only."""

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pv.errors import BrokenMutant

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of source by offsets in its text."""

    start: int
    end: int


def definitions(tree: ast.Module, name: str) -> list[Definition]:
    """Every definition with the dotted `name`, also below if, try and with: a name can be defined twice."""
    return [node for found, node in _walk(tree.body, "") if found == name]


def names(tree: ast.Module) -> list[str]:
    """The dotted names that a module defines."""
    return [name for name, _ in _walk(tree.body, "")]


def _walk(body: Sequence[ast.AST], prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from _walk(node.body, f"{prefix}{node.name}.")
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + t.id, node) for t in targets if isinstance(t, ast.Name))
        for block in ("body", "orelse", "finalbody", "handlers"):
            yield from _walk(getattr(node, block, None) or [], prefix)


def patch(source: str, name: str, find: str, replace: str) -> str:
    """`source` with the one place in the definitions of `name` that reads `find` replaced by `replace`.

    Only the lines of that place change, and a shorter replacement is padded, so line numbers below it stay right.
    Raises BrokenMutant when there is no such place, more than one, or the syntax tree would not change.
    """
    found = definitions(_tree(source), name)
    if not found:
        raise BrokenMutant(f"there is no {name!r}")
    pattern = _pattern(find)
    matches = [match for node in found for match in _matches(node, pattern)]
    if len(matches) != 1:
        raise BrokenMutant(f"{find!r} occurs {len(matches)} times in {name!r}; it must occur exactly once")
    if _parsed(replace) is not None and _alike(pattern, _pattern(replace or "pass")):
        raise BrokenMutant(f"replacing {find!r} by {replace!r} changes nothing")
    first, last = matches[0]
    span = Span(_offset(source, first.lineno, first.col_offset), _offset(source, last.end_lineno, last.end_col_offset))
    whole = isinstance(first, ast.stmt)
    new = _statements(source, span, replace) if whole else _expression(source, span, first, replace)
    if new is None:
        raise BrokenMutant(f"replacing {find!r} by {replace!r} gives no valid Python")
    return new


@lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _pattern(find: str) -> list[ast.stmt]:
    try:
        body = ast.parse(textwrap.dedent(find).strip()).body
    except (SyntaxError, ValueError) as error:
        raise BrokenMutant(f"{find!r} is neither an expression nor whole statements: {error}") from error
    if not body:
        raise BrokenMutant(f"{find!r} is empty")
    return body


def _matches(root: ast.AST, pattern: list[ast.stmt]) -> Iterator[tuple[Any, Any]]:
    """First and last node of each place below `root` that reads like the pattern.

    A lone expression matches wherever it stands; one that is a statement of its own matches as that statement.
    """
    statements = [run for node in ast.walk(root) for run in _runs(node, pattern)]
    yield from statements
    if len(pattern) == 1 and isinstance(pattern[0], ast.Expr):
        covered = {id(first.value) for first, _ in statements if isinstance(first, ast.Expr)}
        wanted = pattern[0].value
        for node in ast.walk(root):
            if type(node) is type(wanted) and id(node) not in covered and _same(node, wanted):
                yield node, node


def _runs(node: ast.AST, pattern: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    for _, body in ast.iter_fields(node):
        if not isinstance(body, list) or not all(isinstance(part, ast.stmt) for part in body):
            continue
        for start in range(len(body) - len(pattern) + 1):
            run = body[start : start + len(pattern)]
            if _alike(run, pattern):
                yield run[0], run[-1]


def _alike(a: Sequence[ast.AST], b: Sequence[ast.AST]) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _same(a: ast.AST, b: ast.AST) -> bool:
    """Whether two trees read alike. A name reads alike whether it is loaded or stored to."""
    return type(a) is type(b) and _shape(a) == _shape(b)


def _shape(node: ast.AST) -> str:
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()")


def _expression(source: str, span: Span, place: ast.expr, replace: str) -> str | None:
    """The text with the expression replaced; in brackets where it would otherwise bind to its neighbours."""
    body = textwrap.dedent(replace).strip() or "None"
    wanted = _parsed(f"({body}\n)")
    if wanted is None or len(wanted.body) != 1 or not isinstance(wanted.body[0], ast.Expr):
        return None
    plain = _splice(source, span, body)
    if _reads(plain, place, wanted.body[0].value):
        return plain
    bracketed = _splice(source, span, f"({body})")
    return bracketed if _parsed(bracketed) is not None else None


def _reads(source: str, place: ast.expr, wanted: ast.expr) -> bool:
    """Whether the source has, where `place` was, an expression that reads like `wanted`."""
    tree = _parsed(source)
    return tree is not None and any(
        getattr(node, "lineno", 0) == place.lineno
        and getattr(node, "col_offset", -1) == place.col_offset
        and _same(node, wanted)
        for node in ast.walk(tree)
    )


def _statements(source: str, span: Span, replace: str) -> str | None:
    body = textwrap.dedent(replace).strip() or "pass"
    line_start = source.rfind("\n", 0, span.start) + 1
    indent = source[line_start : span.start]
    if indent.strip():
        return None  # the statement shares its line with another one
    text = textwrap.indent(body, indent)[len(indent) :]
    missing = source.count("\n", span.start, span.end) - text.count("\n")
    new = _splice(source, span, text + "\n" * max(0, missing))
    return new if _parsed(new) is not None else None


def _splice(source: str, span: Span, text: str) -> str:
    return source[: span.start] + text + source[span.end :]


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _offset(source: str, line: int, column: int) -> int:
    """The offset in the text of a place that `ast` gives as a line and a column in UTF-8 bytes."""
    lines = source.splitlines(keepends=True)
    before = sum(len(text) for text in lines[: line - 1])
    return before + len(lines[line - 1].encode()[:column].decode())


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a module with its dotted name, nested ones included."""
    for name, node in _walk(tree.body, ""):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
