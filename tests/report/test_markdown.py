"""Markdown keeps messages of the code under contract inside fences and columns."""

import re

import pytest
from markdown_it import MarkdownIt

from pv.report import render
from tests.report.handmade import HOSTILE, PLAIN, many


def unfenced(markdown: str) -> str:
    """The markdown without its fenced blocks, as a reader of CommonMark finds them."""
    kept: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        mark = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif mark:
            fence = mark[0]
        else:
            kept.append(line)
    assert not fence, "a fence is left open"
    return "\n".join(kept)


def test_markdown_keeps_foreign_text_inside_its_fences() -> None:
    outside = unfenced(render(HOSTILE, "markdown"))
    assert "::error::no\n" not in outside
    assert re.search(r"(?<!\\)<b>", outside) is None
    assert re.search(r"(?<!\\)\[z\]\(", outside) is None


def test_markdown_keeps_every_row_of_a_table_in_its_columns() -> None:
    for what in (PLAIN, HOSTILE):
        rows = [line for line in unfenced(render(what, "markdown")).split("\n") if line.startswith("| `F-")]
        assert len(rows) == 6
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_a_reader_of_commonmark_finds_the_same_structure_whatever_the_text() -> None:
    def shape(text: str) -> list[str]:
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        return [token.type for token in tokens if token.type not in ("inline", "paragraph_open", "paragraph_close")]

    assert shape(render(HOSTILE, "markdown")) == shape(render(PLAIN, "markdown"))


@pytest.mark.parametrize("most", [1024, 4000, 20_000])
def test_markdown_keeps_to_its_size_and_counts_what_it_leaves_out(most: int) -> None:
    given = many(500)
    whole, short = render(given, "markdown"), render(given, "markdown", max_bytes=most)
    assert len(short.encode()) <= most < len(whole.encode())
    assert re.search(r"\n\d+ parts of this report are left out: they exceed its size limit\.", short)
    assert "parts of this report are left out" not in whole
    assert short.endswith("exit 1\n")
    unfenced(short)
