"""Find expressions and statements of a module by their syntax tree, and replace one of them.

`Source` finds the places whose syntax tree equals a pattern, whatever their formatting and comments; `patch` replaces
the text of one place. Only the statement or definition around the place is parsed again, because all other lines stay
unchanged.
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
"""Types of statements that can be parsed without their context."""
NOT_COMPARED = {"ctx", "kind"}
"""Fields of nodes that do not matter: whether a name is loaded or stored, and whether a string has the prefix `u`."""
Replacements = Mapping[int, object]
"""New nodes, or lists of statements, by the `id` of the object that they replace."""
NO_REPLACEMENTS: Replacements = {}
LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a text between two offsets."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Match:
    """A place whose syntax tree equals a pattern: one expression, or consecutive statements of `block`.

    Attributes:
        first, last: The first and the last node; the same node for an expression.
        block: The list of statements that contains the place; None for an expression.
    """

    first: Any
    last: Any
    block: list[ast.stmt] | None = None

    def equals(self, new: list[ast.stmt]) -> bool:
        """Return whether the syntax tree of this place equals `new`."""
        if self.block is None:
            return len(new) == 1 and isinstance(new[0], ast.Expr) and same_tree(self.first, new[0].value)
        return same_tree(self.statements, new)

    @property
    def statements(self) -> list[ast.stmt]:
        """Return the statements at this place; [] for an expression."""
        block = self.block or []
        return block[block.index(self.first) : block.index(self.last) + 1]

    def replacements(self, new: list[ast.stmt], body: list[ast.stmt]) -> Replacements:
        """Return the replacements that put `new` at this place in the statements `body` of a segment."""
        if self.block is None:
            return {id(self.first): new[0].value if isinstance(new[0], ast.Expr) else new[0]}
        if body[0] is self.first:  # the segment has the statements of this place alone: `body` is not `self.block`
            return {id(body): new}
        start, end = self.block.index(self.first), self.block.index(self.last) + 1
        return {id(self.block): [*self.block[:start], *new, *self.block[end:]]}


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole lines that can be parsed without the rest of the module.

    Attributes:
        span: The offsets of the lines.
        body: The statements in the lines.
        indented: Whether the lines are indented; they are then parsed as the body of an `if`.
    """

    span: Span
    body: list[ast.stmt]
    indented: bool = False

    def parse(self, text: str) -> list[ast.stmt] | None:
        """Parse `text`, the new lines of this segment. Return the statements; None if the text is not Python."""
        try:
            body = ast.parse(f"if 1:\n{text}" if self.indented else text).body
        except syntax.UNREADABLE:
            return None
        if self.indented and len(body) == 1 and isinstance(body[0], ast.If):
            return body[0].body
        return body


class Source:
    """The text of a module with its syntax tree, and an index of the tree that many patches share.

    Raises:
        SyntaxError: The text is not Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._nodes: dict[int, _Nodes] = {}

    def definitions(self, name: str) -> list[syntax.Definition]:
        """Return all definitions of a dotted name; there may be several, such as in both branches of an `if`."""
        return self._definitions.get(name, [])

    def occurrences(self, name: str, find: str) -> list[Match]:
        """Return every place in the definitions of `name` whose syntax tree equals `find`, in any formatting."""
        pattern = _pattern(find)
        return [match for node in self.definitions(name) for match in self._nodes_of(node).matches(pattern)]

    def span(self, match: Match) -> Span:
        """Return the offsets of a match in the text."""
        start = self._offset(match.first.lineno, match.first.col_offset)
        decorators = getattr(match.first, "decorator_list", None)
        if decorators:  # `ast` gives the position of `def` or `class`, which is below the decorators
            start = self.text.rindex("@", 0, self._offset(decorators[0].lineno, decorators[0].col_offset))
        return Span(start, self._offset(match.last.end_lineno, match.last.end_col_offset))

    def segment(self, match: Match) -> Segment:
        """Return the smallest segment around a match: the matched statements alone if these lines can be parsed."""
        if match.block is None:
            return self._segments.of_node[id(match.first)]
        statements = match.statements
        segments = [segment for node in statements if (segment := self._statement_segment(node)) is not None]
        if len(segments) < len(statements):  # a statement cannot be parsed alone, such as an `elif`
            return self._segments.around_statement[id(match.first)]
        return Segment(Span(segments[0].span.start, segments[-1].span.end), statements, segments[0].indented)

    @cached_property
    def _definitions(self) -> dict[str, list[syntax.Definition]]:
        by_name: dict[str, list[syntax.Definition]] = {}
        for name, node in syntax.walk(self.tree.body):
            by_name.setdefault(name, []).append(node)
        return by_name

    def _nodes_of(self, node: ast.AST) -> "_Nodes":
        if id(node) not in self._nodes:
            self._nodes[id(node)] = _Nodes(node)
        return self._nodes[id(node)]

    @cached_property
    def _lines(self) -> list[int]:
        # The offset of every line. Not by splitlines(), which also splits at form feeds and other characters that do
        # not end a line of Python.
        return [0, *(end.end() for end in LINE_END.finditer(self.text)), len(self.text)]

    def _offset(self, line: int, column: int) -> int:
        """Return the offset in the text of a position of `ast`: a line, and a column in UTF-8 bytes."""
        start = self._lines[line - 1]
        return start + len(self.text[start : start + column].encode()[:column].decode())

    @cached_property
    def _segments(self) -> "_Segments":
        # From the top down: a node has the segment of its parent, unless it is a statement with a segment of its own.
        segments = _Segments({}, {})
        todo: list[tuple[ast.AST, Segment]] = [(node, top) for top in self._top_segments() for node in top.body]
        while todo:
            node, segment = todo.pop()
            if isinstance(node, ast.stmt):
                segments.around_statement[id(node)] = segment
                segment = self._statement_segment(node) or segment
            segments.of_node[id(node)] = segment
            todo += [(child, segment) for child in ast.iter_child_nodes(node)]
        return segments

    def _top_segments(self) -> Iterator[Segment]:
        """Yield the segments of the top-level statements; statements that share a line are in one segment."""
        groups: list[list[ast.stmt]] = []
        for node in self.tree.body:
            if groups and node.lineno <= (groups[-1][-1].end_lineno or 0):
                groups[-1].append(node)
            else:
                groups.append([node])
        line = 0
        for statements in groups:
            end = statements[-1].end_lineno or 0
            yield Segment(Span(self._lines[line], self._lines[end]), statements)
            line = end

    def _statement_segment(self, node: ast.stmt) -> Segment | None:
        """Return the segment of a definition, or of a simple statement whose lines have no other code; else None."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        span = Span(self._lines[first - 1], self._lines[node.end_lineno or 0])
        if isinstance(node, syntax.DEFINITIONS) or (isinstance(node, SIMPLE) and self._is_alone(node, span)):
            return Segment(span, [node], indented=node.col_offset > 0)
        return None

    def _is_alone(self, node: ast.stmt, span: Span) -> bool:
        """Return whether the lines `span` of a statement have no other code and do not continue the line above."""
        before = self.text[span.start : self._offset(node.lineno, node.col_offset)]
        after = self.text[self._offset(node.end_lineno or 0, node.end_col_offset or 0) : span.end].lstrip()
        is_continued = self.text[max(0, span.start - 3) : span.start].rstrip("\r\n").endswith("\\")
        return not before.strip() and (not after or after.startswith("#")) and not is_continued


@dataclass(frozen=True, slots=True)
class _Segments:
    """The segments of a module, by the `id` of nodes.

    Attributes:
        of_node: The smallest segment that contains a node. For a statement, it may consist of this statement.
        around_statement: The smallest segment around a statement, other than the segment of the statement itself.
    """

    of_node: dict[int, Segment]
    around_statement: dict[int, Segment]


class _Nodes:
    """All nodes of a definition by their type, and its blocks of statements, both in the order of `ast.walk`."""

    def __init__(self, root: ast.AST) -> None:
        self.by_type: dict[type[ast.AST], list[ast.AST]] = {}
        self.blocks: list[list[ast.stmt]] = []
        for node in ast.walk(root):
            self.by_type.setdefault(type(node), []).append(node)
            fields = (field for _, field in ast.iter_fields(node))
            self.blocks += [b for b in fields if isinstance(b, list) and b and all(isinstance(s, ast.stmt) for s in b)]

    def matches(self, pattern: list[ast.stmt]) -> Iterator[Match]:
        """Yield every place whose syntax tree equals the pattern.

        A pattern of one expression matches every occurrence of the expression. An occurrence that is a whole statement
        is yielded as a statement.
        """
        statements = [match for block in self.blocks for match in _statement_matches(block, pattern)]
        yield from statements
        if len(pattern) == 1 and isinstance(pattern[0], ast.Expr):
            yielded = {id(match.first.value) for match in statements if isinstance(match.first, ast.Expr)}
            expression = pattern[0].value
            for node in self.by_type.get(type(expression), ()):
                if id(node) not in yielded and same_tree(node, expression):
                    yield Match(node, node)


def _statement_matches(block: list[ast.stmt], pattern: list[ast.stmt]) -> Iterator[Match]:
    """Yield the consecutive statements of a block that are equal to the pattern."""
    for start in range(len(block) - len(pattern) + 1):
        end = start + len(pattern)
        # First compare only the types of the first statements: this is fast and excludes nearly every start.
        if type(block[start]) is type(pattern[0]) and same_tree(block[start:end], pattern):
            yield Match(block[start], block[end - 1], block)


@lru_cache(maxsize=256)
def read(text: str) -> Source:
    """Return the `Source` of a text, parsed once. Raise SyntaxError."""
    return Source(text)


@lru_cache(maxsize=1024)
def _pattern(find: str) -> list[ast.stmt]:
    """Return the statements of `find`. Raise BrokenMutant if the text is empty or not Python."""
    try:
        body = ast.parse(textwrap.dedent(find).strip()).body
    except syntax.UNREADABLE as error:
        message = f"{find!r} is neither an expression nor whole statements: {error}"
        raise BrokenMutant(MutantProblem.NO_MATCH, message) from error
    if not body:
        raise BrokenMutant(MutantProblem.NO_MATCH, f"{find!r} is empty")
    return body


# A dict, because it is faster than `functools.cache` and `same_tree` looks up the fields of every node.
class _ComparedFields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields that `same_tree` compares, by type of node."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        self[kind] = tuple(field for field in kind._fields if field not in NOT_COMPARED)
        return self[kind]


_compared_fields = _ComparedFields()


def same_tree(a: Any, b: Any, replacements: Replacements = NO_REPLACEMENTS) -> bool:
    """Return whether two trees are equal, except for positions and the fields `NOT_COMPARED`.

    Args:
        a: A node, a list of statements, or a value of a field.
        b: The value to compare `a` with.
        replacements: The parts of `a` that other nodes replace before the comparison.
    """
    # Without recursion: the trees of users may be nested more deeply than Python's stack allows.
    todo = [(a, b)]
    while todo:
        left, right = todo.pop()
        if replacements:
            left = replacements.get(id(left), left)
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            todo += [(getattr(left, f, None), getattr(right, f, None)) for f in _compared_fields[type(left)]]
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            todo += zip(left, right, strict=True)
        elif left != right:
            return False
    return True


@lru_cache(maxsize=2048)
def patch(text: str, name: str, find: str, replace: str, occurrence: int | None = None) -> str:
    """Return the text of a module with one place replaced.

    1. Find the places in the definitions of `name` whose syntax tree equals `find`.
    2. Write the replacement in the layout of the place. Only the lines of the place change. A replacement with fewer
       lines is padded with empty lines, so that the numbers of the lines below stay the same.
    3. Parse the segment around the place again, and check that nothing else in its tree has changed.

    Args:
        text: The text of the module.
        name: The dotted name of a function, class or variable.
        find: An expression or whole statements.
        replace: The new expression or statements; "" to remove statements, or to replace an expression by None.
        occurrence: The index of the place, from 0; None if there must be exactly one.

    Raises:
        BrokenMutant: There is no such place, there are several, the replacement is invalid or changes nothing, or the
            result would differ in another place too.
    """
    source = read(text)
    match = _find_match(source, name, find, occurrence)
    is_statement = match.block is not None
    body = textwrap.dedent(replace).strip() or ("pass" if is_statement else "None")
    # Inside brackets an expression may extend over several lines. The line end before `)` ends a comment.
    new = _parse(body if is_statement else f"({body}\n)")
    if new is None or not new.body or (not is_statement and not isinstance(new.body[0], ast.Expr)):
        kind = "a statement" if is_statement else "an expression"
        raise BrokenMutant(MutantProblem.INVALID_REPLACEMENT, f"invalid replacement {replace!r}: expected {kind}")
    if match.equals(new.body):
        raise BrokenMutant(MutantProblem.NO_CHANGE, f"replacing {find!r} by {replace!r} changes nothing")
    span, segment = source.span(match), source.segment(match)
    around = segment.span
    replacements = match.replacements(new.body, segment.body)
    candidates = _statements(text, span, body) if is_statement else _expressions(text, span, body)
    for candidate in candidates:
        changed = segment.parse(text[around.start : span.start] + candidate + text[span.end : around.end])
        if changed is not None and same_tree(segment.body, changed, replacements):
            return text[: span.start] + candidate + text[span.end :]
    message = f"replacing {find!r} by {replace!r} would change other code too, or is not valid Python"
    raise BrokenMutant(MutantProblem.INVALID_REPLACEMENT, message)


def _find_match(source: Source, name: str, find: str, occurrence: int | None) -> Match:
    if not source.definitions(name):
        raise BrokenMutant(MutantProblem.NO_DEFINITION, f"unknown function {name!r}")
    matches = source.occurrences(name, find)
    times = f"{find!r} occurs {len(matches)} times in {name!r}"
    # Without an index, several places are an error: `patch` must not choose one for the author.
    if occurrence is None and len(matches) != 1:
        raise BrokenMutant(MutantProblem.NO_MATCH, f"{times}; it must occur exactly once")
    if occurrence is not None and occurrence >= len(matches):
        raise BrokenMutant(MutantProblem.NO_MATCH, f"{times}, not {occurrence + 1} times")
    return matches[occurrence or 0]


def _expressions(text: str, span: Span, body: str) -> Iterator[str]:
    """Yield texts of an expression in the place of a span, the preferred one first.

    Inside brackets, line ends can be added to keep the number of lines. Where brackets are not valid, the expression is
    written without brackets.
    """
    missing = max(0, _line_ends(text[span.start : span.end]) - _line_ends(body))
    if not missing:
        yield body
    yield "(" + body + "\n" * missing + ")"
    yield body


def _statements(text: str, span: Span, body: str) -> Iterator[str]:
    """Yield the text of statements in the place of a span, indented unless the span follows other code on its line."""
    line_start = text.rfind("\n", 0, span.start) + 1
    indent = text[line_start : span.start]
    if indent.strip():
        yield body
        return
    indented = _indented(body, indent)
    missing = max(0, _line_ends(text[span.start : span.end]) - _line_ends(indented))
    yield indented + "\n" * missing


def _indented(body: str, indent: str) -> str:
    """Return the text of statements with every line indented, except the first line and the lines inside strings."""
    tree = ast.parse(body)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    unchanged = {1} | {line for node in strings for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)}
    lines = enumerate(body.split("\n"), 1)
    return "\n".join(line if number in unchanged or not line else indent + line for number, line in lines)


def _line_ends(text: str) -> int:
    return len(LINE_END.findall(text))


def _parse(text: str) -> ast.Module | None:
    """Return the tree of a text, None if it is not Python."""
    try:
        return ast.parse(text)
    except syntax.UNREADABLE:
        return None
