"""Markup is built from text that is always escaped."""

import pytest

from pv.report.html.markup import tag
from tests.report.handmade import NASTY
from tests.report.html.pages import fragment


@pytest.mark.parametrize("text", ["<script>x</script>", '"', "'", "&amp;", "</p>", "]]>", NASTY.replace("\ud800", "")])
def test_a_text_comes_out_as_it_went_in(text: str) -> None:
    (element,) = fragment(tag("p", text, title=text))
    shown = text.replace("\0", "\\x00").replace("\x1b", "\\x1b").replace("\x07", "\\x07")
    assert (element.text, element.get("title"), len(element)) == (shown, shown, 0)
