"""Markdown keeps messages of the code under contract inside fences and columns."""

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pv.report import render
from tests.report.handmade import HOSTILE, PLAIN, many


def tokens(markdown: str) -> list[Token]:
    """Return the tokens that a reader of CommonMark finds; of a text in place of itself its parts."""
    found = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [part for token in found for part in (token.children or [token])]


def test_markdown_keeps_foreign_text_inside_its_fences() -> None:
    outside = [token for token in tokens(render(HOSTILE, "markdown")) if token.type != "fence"]
    assert {"html_inline", "link_open"}.isdisjoint(token.type for token in outside)
    assert not [token for token in outside if token.content.startswith("::")]


def test_markdown_keeps_every_row_of_a_table_in_its_columns() -> None:
    for what in (PLAIN, HOSTILE):
        rows = [line for line in render(what, "markdown").split("\n") if line.startswith("| `F-")]
        assert len(rows) == 6
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_a_reader_of_commonmark_finds_the_same_structure_whatever_the_text() -> None:
    def shape(text: str) -> list[str]:
        return [token.type for token in MarkdownIt("commonmark").enable("table").parse(text) if token.nesting]

    assert shape(render(HOSTILE, "markdown")) == shape(render(PLAIN, "markdown"))


@pytest.mark.parametrize("most", [1024, 4000, 20_000])
def test_markdown_keeps_to_its_size_and_counts_what_it_leaves_out(most: int) -> None:
    given = many(500)
    whole, short = render(given, "markdown"), render(given, "markdown", max_bytes=most)
    assert len(short.encode()) <= most < len(whole.encode())
    assert re.search(r"\n\d+ parts of this report are left out: they exceed its size limit\.", short)
    assert "parts of this report are left out" not in whole
    assert short.endswith("exit 1\n") and tokens(short)[-1].type != "fence"
