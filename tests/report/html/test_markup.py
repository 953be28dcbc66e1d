"""Markup is built from text that is always escaped."""

import pytest

from pv.report.html.markup import Html, escaped, hidden, joined, table, tag
from tests.report.handmade import NASTY
from tests.report.html.pages import fragment, words


@pytest.mark.parametrize("text", ["<script>x</script>", '"', "'", "&amp;", "</p>", "]]>", NASTY.replace("\ud800", "")])
def test_a_text_comes_out_as_it_went_in(text: str) -> None:
    (element,) = fragment(tag("p", text, title=text))
    shown = text.replace("\0", "\\x00").replace("\x1b", "\\x1b").replace("\x07", "\\x07")
    assert (element.text, element.get("title"), len(element)) == (shown, shown, 0)


def test_only_markup_is_not_escaped() -> None:
    assert joined(["<b>", Html("<i></i>"), None, [tag("u", "&")]]) == "&lt;b&gt;<i></i><u>&amp;</u>"
    assert isinstance(escaped("a"), Html)


def test_attributes_lose_their_underscores_and_false_ones_are_left_out() -> None:
    found = tag("details", class_="a", aria_label="b", open=True, hidden=False, title=None)
    assert found == '<details class="a" aria-label="b" open></details>'


def test_an_element_of_svg_is_closed() -> None:
    assert tag("line", x1=0) == '<line x1="0"></line>'
    assert tag("input", type="search") == '<input type="search">'


def test_a_table_has_a_caption_column_headers_and_a_label_for_its_scrolling_region() -> None:
    region = fragment(table("c", ["a", hidden("b")], [tag("tr", tag("td", "1"), tag("td", "2"))]))[0]
    assert (region.get("role"), region.get("aria-label"), region.get("tabindex")) == ("region", "c", "0")
    assert [(head.get("scope"), words(head)) for head in region.iter("th")] == [("col", "a"), ("col", "b")]
    assert [words(each) for each in region.iter("caption")] == ["c"]
