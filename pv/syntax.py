"""Finds code by its syntax tree, so that formatting and comments never matter. Standard library only."""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pv.errors import BrokenMutant

# What Python's parser raises for text that is no program, or one nested too deeply for it.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
UNREAD = {"ctx", "kind"}
NOTHING: Mapping[int, Any] = {}
_LINE_END = re.compile(r"\r\n|\r|\n")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of source by offsets in its text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Match:
    """A place that reads like a pattern: one expression, or a run of statements in `block`."""

    first: Any
    last: Any
    block: list[ast.stmt] | None = None

    def span(self, source: str) -> Span:
        start = _offset(source, self.first.lineno, self.first.col_offset)
        decorators = getattr(self.first, "decorator_list", None)
        if decorators:  # a definition's own position is that of its `def`
            start = source.rindex("@", 0, _offset(source, decorators[0].lineno, decorators[0].col_offset))
        return Span(start, _offset(source, self.last.end_lineno, self.last.end_col_offset))

    def instead(self, new: list[ast.stmt]) -> dict[int, Any]:
        """What stands in this place once it is replaced: by the identity of the node, or of the block it lies in."""
        if self.block is None:
            return {id(self.first): new[0].value if isinstance(new[0], ast.Expr) else new[0]}
        start, end = self.block.index(self.first), self.block.index(self.last) + 1
        return {id(self.block): [*self.block[:start], *new, *self.block[end:]]}


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
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _walk(getattr(node, block, None) or [], prefix)


def patch(source: str, name: str, find: str, replace: str, occurrence: int | None = None) -> str:
    """`source` with the one place in the definitions of `name` that reads `find` replaced by `replace`.

    `occurrence` says which place (from 0) where more than one reads so.

    Only the lines of that place change, and a shorter replacement is padded, so line numbers below it stay right.
    Raises BrokenMutant when there is no such place, more than one, or when the result would not be the same tree with
    exactly that change.
    """
    tree = _tree(source)
    if not definitions(tree, name):
        raise BrokenMutant(f"there is no {name!r}")
    matches = occurrences(tree, name, find)
    if occurrence is None and len(matches) != 1:
        raise BrokenMutant(f"{find!r} occurs {len(matches)} times in {name!r}; it must occur exactly once")
    if occurrence is not None and occurrence >= len(matches):
        raise BrokenMutant(f"{find!r} occurs {len(matches)} times in {name!r}, not {occurrence + 1} times")
    match, body = matches[occurrence or 0], textwrap.dedent(replace).strip()
    whole = match.block is not None
    new = _parsed((body or "pass") if whole else f"({body or None}\n)")
    if new is None or not new.body or (not whole and not isinstance(new.body[0], ast.Expr)):
        raise BrokenMutant(f"{replace!r} is no {'statement' if whole else 'expression'}")
    instead = match.instead(new.body)
    for text in (_statements if whole else _expressions)(source, match.span(source), body):
        changed = _parsed(text)
        if changed is None or not _same(tree, changed, instead):
            continue
        if _same(tree, changed):
            raise BrokenMutant(f"replacing {find!r} by {replace!r} changes nothing")
        return text
    raise BrokenMutant(f"replacing {find!r} by {replace!r} would change more than that, or gives no valid Python")


def occurrences(tree: ast.Module, name: str, find: str) -> list[Match]:
    """Every place in the definitions of `name` that reads `find`, in an order that formatting does not change."""
    pattern = _pattern(find)
    return [match for node in definitions(tree, name) for match in _matches(node, pattern)]


@lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _pattern(find: str) -> list[ast.stmt]:
    try:
        body = ast.parse(textwrap.dedent(find).strip()).body
    except UNREADABLE as error:
        raise BrokenMutant(f"{find!r} is neither an expression nor whole statements: {error}") from error
    if not body:
        raise BrokenMutant(f"{find!r} is empty")
    return body


def _matches(root: ast.AST, pattern: list[ast.stmt]) -> Iterator[Match]:
    """Each place below `root` that reads like the pattern.

    A lone expression matches wherever it stands; one that is a statement of its own matches as that statement.
    """
    statements = [run for node in ast.walk(root) for run in _runs(node, pattern)]
    yield from statements
    if len(pattern) == 1 and isinstance(pattern[0], ast.Expr):
        covered = {id(run.first.value) for run in statements if isinstance(run.first, ast.Expr)}
        wanted = pattern[0].value
        for node in ast.walk(root):
            if type(node) is type(wanted) and id(node) not in covered and _same(node, wanted):
                yield Match(node, node)


def _runs(node: ast.AST, pattern: list[ast.stmt]) -> Iterator[Match]:
    for _, body in ast.iter_fields(node):
        if not isinstance(body, list) or not all(isinstance(part, ast.stmt) for part in body):
            continue
        for start in range(len(body) - len(pattern) + 1):
            run = body[start : start + len(pattern)]
            if _same(run, pattern):
                yield Match(run[0], run[-1], body)


def _same(a: Any, b: Any, instead: Mapping[int, Any] = NOTHING) -> bool:
    """Whether two trees read alike, with the parts of `a` in `instead` exchanged; without recursion.

    A name reads alike whether it is loaded or stored to.
    """
    todo = [(a, b)]
    while todo:
        left, right = todo.pop()
        left = instead.get(id(left), left)
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            todo += [(getattr(left, f, None), getattr(right, f, None)) for f in left._fields if f not in UNREAD]
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            todo += zip(left, right, strict=True)
        elif left != right:
            return False
    return True


def _expressions(source: str, span: Span, body: str) -> Iterator[str]:
    """Ways to write an expression in the span's place: plain, else in brackets, which also hold its line ends."""
    body = body or "None"
    missing = max(0, _lines(source[span.start : span.end]) - _lines(body))
    if not missing:
        yield _splice(source, span, body)
    yield _splice(source, span, "(" + body + "\n" * missing + ")")
    yield _splice(source, span, body)


def _statements(source: str, span: Span, body: str) -> Iterator[str]:
    """Ways to write statements in the span's place: indented as it is, else in the line that it shares with others."""
    body = body or "pass"
    line_start = source.rfind("\n", 0, span.start) + 1
    indent = source[line_start : span.start]
    if indent.strip():
        yield _splice(source, span, body)
        return
    text = _indented(body, indent)
    missing = max(0, _lines(source[span.start : span.end]) - _lines(text))
    yield _splice(source, span, text + "\n" * missing)


def _indented(body: str, indent: str) -> str:
    """Statements, all but their first line indented; the lines of a string that goes on are its text."""
    tree = ast.parse(body)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    text = {line for node in strings for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)} | {1}
    lines = enumerate(body.split("\n"), 1)
    return "\n".join(line if number in text or not line else indent + line for number, line in lines)


def _lines(text: str) -> int:
    return len(_LINE_END.findall(text))


def _splice(source: str, span: Span, text: str) -> str:
    return source[: span.start] + text + source[span.end :]


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except UNREADABLE:
        return None


def _offset(source: str, line: int, column: int) -> int:
    """The offset in the text of a place that `ast` gives as a line and a column in UTF-8 bytes."""
    # Not splitlines(): it also splits at form feeds and other characters that end no line of Python.
    starts = [0, *(end.end() for end in _LINE_END.finditer(source))]
    start = starts[line - 1]
    return start + len(source[start : start + column].encode()[:column].decode())


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of statements right inside a statement that runs them itself; a definition runs none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    inner = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    found = [getattr(part, name, None) for part in inner for name in ("body", "orelse", "finalbody")]
    yield from (block for block in found if block)


def defined(tree: ast.Module) -> list[str]:
    """The dotted names of the functions and classes of a module, nested ones included."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [name for name, node in _walk(tree.body, "") if isinstance(node, kinds)]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a module with its dotted name, nested ones included."""
    for name, node in _walk(tree.body, ""):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
