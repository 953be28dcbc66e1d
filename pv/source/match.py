"""Finds expressions and statements that read like a pattern, by syntax tree. Standard library only.

Formatting and comments never matter.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from pv.errors import BrokenMutant, MutantProblem
from pv.source import syntax

SIMPLE = (ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Assert, ast.Raise, ast.Delete)
NOT_COMPARED = {"ctx", "kind"}
NOTHING: Mapping[int, Any] = {}
LINE_END = re.compile(r"\r\n|\r|\n")


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

    def reads(self, new: list[ast.stmt]) -> bool:
        """Return whether `new` reads like what is there."""
        if self.block is None:
            return len(new) == 1 and isinstance(new[0], ast.Expr) and same(self.first, new[0].value)
        return same(self.run, new)

    @property
    def run(self) -> list[ast.stmt]:
        """Return the statements, if it is a run of them."""
        block = self.block or []
        return block[block.index(self.first) : block.index(self.last) + 1]

    def exchange(self, new: list[ast.stmt], segment: list[ast.stmt]) -> dict[int, Any]:
        """Return the replacement in a segment, keyed by the identity of the node or list of statements it replaces."""
        if self.block is None:
            return {id(self.first): new[0].value if isinstance(new[0], ast.Expr) else new[0]}
        if segment[0] is self.first:
            return {id(segment): new}
        start, end = self.block.index(self.first), self.block.index(self.last) + 1
        return {id(self.block): [*self.block[:start], *new, *self.block[end:]]}


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole lines with the statements `body`, which parse alone, below an `if` where indented, as in the module."""

    span: Span
    body: list[ast.stmt]
    indented: bool = False

    def parsed(self, text: str) -> list[ast.stmt] | None:
        """Return the statements of `text` in the segment's place; None where it is not Python."""
        try:
            body = ast.parse(f"if 1:\n{text}" if self.indented else text).body
        except syntax.UNREADABLE:
            return None
        return body[0].body if self.indented and len(body) == 1 and isinstance(body[0], ast.If) else body


class Source:
    """The text of a module with its syntax tree, and an index of it that many patches share. Raise SyntaxError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._nodes: dict[int, _Nodes] = {}

    def definitions(self, name: str) -> list[syntax.Definition]:
        """Return every definition with the dotted `name`, also below if, try and with: it can be defined twice."""
        return self._definitions.get(name, [])

    def occurrences(self, name: str, find: str) -> list[Match]:
        """Return every place in the definitions of `name` that reads `find`, in an order independent of formatting."""
        pattern = _pattern(find)
        return [match for node in self.definitions(name) for match in self._below(node).matches(pattern)]

    def span(self, match: Match) -> Span:
        start = self._offset(match.first.lineno, match.first.col_offset)
        decorators = getattr(match.first, "decorator_list", None)
        if decorators:  # a definition's own position is that of its `def`
            start = self.text.rindex("@", 0, self._offset(decorators[0].lineno, decorators[0].col_offset))
        return Span(start, self._offset(match.last.end_lineno, match.last.end_col_offset))

    def segment(self, match: Match) -> Segment:
        """Return the smallest segment around a match. For a run of statements it is a definition, or the run itself."""
        if match.block is None:
            return self._around[id(match.first)]
        outside, run = self._outside[id(match.first)], match.run
        own = [segment for node in run if (segment := self._own(node)) is not None]
        if len(own) < len(run):
            return outside  # an `elif` has no lines of its own
        return Segment(Span(own[0].span.start, own[-1].span.end), run, own[0].indented)

    @cached_property
    def _definitions(self) -> dict[str, list[syntax.Definition]]:
        found: dict[str, list[syntax.Definition]] = {}
        for name, node in syntax.walk(self.tree.body):
            found.setdefault(name, []).append(node)
        return found

    def _below(self, node: ast.AST) -> "_Nodes":
        if id(node) not in self._nodes:
            self._nodes[id(node)] = _Nodes(node)
        return self._nodes[id(node)]

    @cached_property
    def _lines(self) -> list[int]:
        # Not splitlines(): it also splits at form feeds and other characters that end no line of Python.
        return [0, *(end.end() for end in LINE_END.finditer(self.text)), len(self.text)]

    def _offset(self, line: int, column: int) -> int:
        """Return the offset in the text of a place that `ast` gives as a line and a column in UTF-8 bytes."""
        start = self._lines[line - 1]
        return start + len(self.text[start : start + column].encode()[:column].decode())

    @cached_property
    def _around(self) -> dict[int, Segment]:
        """Return the segment of every node; that of a statement may be its own."""
        return self._segments[0]

    @cached_property
    def _outside(self) -> dict[int, Segment]:
        """Return the segment around every statement."""
        return self._segments[1]

    @cached_property
    def _segments(self) -> tuple[dict[int, Segment], dict[int, Segment]]:
        around: dict[int, Segment] = {}
        outside: dict[int, Segment] = {}
        todo: list[tuple[ast.AST, Segment]] = [(n, top) for top in self._top_segments() for n in top.body]
        while todo:
            node, segment = todo.pop()
            if isinstance(node, ast.stmt):
                outside[id(node)] = segment
                segment = self._own(node) or segment
            around[id(node)] = segment
            todo += [(child, segment) for child in ast.iter_child_nodes(node)]
        return around, outside

    def _top_segments(self) -> Iterator[Segment]:
        """Yield the top-level statements, those that share a line together."""
        together: list[ast.stmt] = []
        line = 0
        for node in [*self.tree.body, None]:
            if together and (node is None or node.lineno > (together[-1].end_lineno or 0)):
                end = together[-1].end_lineno or 0
                yield Segment(Span(self._lines[line], self._lines[end]), together)
                together, line = [], end
            together += [node] if node is not None else []

    def _own(self, node: ast.stmt) -> Segment | None:
        """Return the segment of a definition, or of a simple statement that shares no line with another."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        span = Span(self._lines[first - 1], self._lines[node.end_lineno or 0])
        alone = isinstance(node, syntax.DEFINITIONS) or (isinstance(node, SIMPLE) and self._alone(node, span))
        return Segment(span, [node], indented=node.col_offset > 0) if alone else None

    def _alone(self, node: ast.stmt, span: Span) -> bool:
        """Return whether a statement is all that its lines hold, but for a comment, and no line goes on into them."""
        before = self.text[span.start : self._offset(node.lineno, node.col_offset)]
        after = self.text[self._offset(node.end_lineno or 0, node.end_col_offset or 0) : span.end].lstrip()
        goes_on = self.text[max(0, span.start - 3) : span.start].rstrip("\r\n").endswith("\\")
        return not before.strip() and (not after or after.startswith("#")) and not goes_on


class _Nodes:
    """The nodes of a definition by type, and its blocks of statements, each in the order of `ast.walk`."""

    def __init__(self, root: ast.AST) -> None:
        self.by_type: dict[type[ast.AST], list[ast.AST]] = {}
        self.blocks: list[list[ast.stmt]] = []
        for node in ast.walk(root):
            self.by_type.setdefault(type(node), []).append(node)
            fields = (field for _, field in ast.iter_fields(node))
            self.blocks += [b for b in fields if isinstance(b, list) and b and all(isinstance(s, ast.stmt) for s in b)]

    def matches(self, pattern: list[ast.stmt]) -> Iterator[Match]:
        """Yield each place that reads like the pattern.

        A lone expression matches wherever it occurs; one that is a statement of its own matches as that statement.
        """
        statements = [run for block in self.blocks for run in _runs(block, pattern)]
        yield from statements
        if len(pattern) == 1 and isinstance(pattern[0], ast.Expr):
            covered = {id(run.first.value) for run in statements if isinstance(run.first, ast.Expr)}
            wanted = pattern[0].value
            for node in self.by_type.get(type(wanted), ()):
                if id(node) not in covered and same(node, wanted):
                    yield Match(node, node)


def _runs(block: list[ast.stmt], pattern: list[ast.stmt]) -> Iterator[Match]:
    for start in range(len(block) - len(pattern) + 1):
        if type(block[start]) is type(pattern[0]) and same(run := block[start : start + len(pattern)], pattern):
            yield Match(run[0], run[-1], block)


@lru_cache(maxsize=256)
def read(text: str) -> Source:
    """Return the source with this text, parsed once. Raise SyntaxError."""
    return Source(text)


@lru_cache(maxsize=1024)
def _pattern(find: str) -> list[ast.stmt]:
    try:
        body = ast.parse(textwrap.dedent(find).strip()).body
    except syntax.UNREADABLE as error:
        message = f"{find!r} is neither an expression nor whole statements: {error}"
        raise BrokenMutant(MutantProblem.NO_MATCH, message) from error
    if not body:
        raise BrokenMutant(MutantProblem.NO_MATCH, f"{find!r} is empty")
    return body


class _Compared(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each type of node in which two nodes must agree."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        self[kind] = tuple(field for field in kind._fields if field not in NOT_COMPARED)
        return self[kind]


_compared = _Compared()


def same(a: Any, b: Any, exchange: Mapping[int, Any] = NOTHING) -> bool:
    """Return whether two trees read alike, with the parts of `a` in `exchange` exchanged; without recursion.

    A name reads alike whether it is loaded or stored to.
    """
    todo = [(a, b)]
    while todo:
        left, right = todo.pop()
        if exchange:
            left = exchange.get(id(left), left)
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            todo += [(getattr(left, f, None), getattr(right, f, None)) for f in _compared[type(left)]]
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            todo += zip(left, right, strict=True)
        elif left != right:
            return False
    return True
