"""Replaces one expression or run of statements of a module, found by its syntax tree. Standard library only.

Only the statement or definition around the place is parsed again, since all other lines stay as they are.
"""

import ast
import textwrap
from collections.abc import Iterator
from functools import lru_cache

from pv.errors import BrokenMutant, MutantProblem
from pv.source import syntax
from pv.source.match import LINE_END, Match, Source, Span, read, same


@lru_cache(maxsize=2048)
def patch(text: str, name: str, find: str, replace: str, occurrence: int | None = None) -> str:
    """Return `text` with the one place in the definitions of `name` that reads `find` replaced by `replace`.

    `occurrence` says which place (from 0) where more than one reads so. The same patch is made once.

    Only the lines of that place change, and a shorter replacement is padded, so line numbers below it stay right.
    Raise BrokenMutant when there is no such place, more than one, or when the result would not be the same tree with
    exactly that change.
    """
    source = read(text)
    match, body = _place(source, name, find, occurrence), textwrap.dedent(replace).strip()
    whole = match.block is not None
    new = _parsed((body or "pass") if whole else f"({body or None}\n)")
    if new is None or not new.body or (not whole and not isinstance(new.body[0], ast.Expr)):
        kind = "a statement" if whole else "an expression"
        raise BrokenMutant(MutantProblem.INVALID_REPLACEMENT, f"invalid replacement {replace!r}: expected {kind}")
    if match.reads(new.body):
        raise BrokenMutant(MutantProblem.NO_CHANGE, f"replacing {find!r} by {replace!r} changes nothing")
    span, segment = source.span(match), source.segment(match)
    around = segment.span
    exchange = match.exchange(new.body, segment.body)
    for piece in (_statements if whole else _expressions)(text, span, body):
        changed = segment.parsed(text[around.start : span.start] + piece + text[span.end : around.end])
        if changed is not None and same(segment.body, changed, exchange):
            return text[: span.start] + piece + text[span.end :]
    message = f"replacing {find!r} by {replace!r} would change more than that, or is not valid Python"
    raise BrokenMutant(MutantProblem.INVALID_REPLACEMENT, message)


def _place(source: Source, name: str, find: str, occurrence: int | None) -> Match:
    if not source.definitions(name):
        raise BrokenMutant(MutantProblem.NO_DEFINITION, f"unknown function {name!r}")
    matches = source.occurrences(name, find)
    times = f"{find!r} occurs {len(matches)} times in {name!r}"
    if occurrence is None and len(matches) != 1:
        raise BrokenMutant(MutantProblem.NO_MATCH, f"{times}; it must occur exactly once")
    if occurrence is not None and occurrence >= len(matches):
        raise BrokenMutant(MutantProblem.NO_MATCH, f"{times}, not {occurrence + 1} times")
    return matches[occurrence or 0]


def _expressions(text: str, span: Span, body: str) -> Iterator[str]:
    """Yield ways to write an expression in the span's place: plain, else in brackets, which also hold line ends."""
    body = body or "None"
    missing = max(0, _line_ends(text[span.start : span.end]) - _line_ends(body))
    if not missing:
        yield body
    yield "(" + body + "\n" * missing + ")"
    yield body


def _statements(text: str, span: Span, body: str) -> Iterator[str]:
    """Yield ways to write statements in the span's place: indented alike, else in the line they share with others."""
    body = body or "pass"
    line_start = text.rfind("\n", 0, span.start) + 1
    indent = text[line_start : span.start]
    if indent.strip():
        yield body
        return
    indented = _indented(body, indent)
    missing = max(0, _line_ends(text[span.start : span.end]) - _line_ends(indented))
    yield indented + "\n" * missing


def _indented(body: str, indent: str) -> str:
    """Return statements, all but their first line indented; the further lines of a string are its text."""
    tree = ast.parse(body)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    text = {line for node in strings for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)} | {1}
    lines = enumerate(body.split("\n"), 1)
    return "\n".join(line if number in text or not line else indent + line for number, line in lines)


def _line_ends(text: str) -> int:
    return len(LINE_END.findall(text))


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except syntax.UNREADABLE:
        return None
