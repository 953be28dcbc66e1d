"""The page is valid HTML, complete in itself, safe whatever it shows, and usable without a mouse or colors."""

import base64
import hashlib
from dataclasses import replace

import pytest

from pv.report import render
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, PLAIN
from tests.report.html.pages import page
from tests.report.many import many
from tests.results.test_saved import full

REPORTS = {"plain": PLAIN, "hostile": HOSTILE, "full": full(), "nothing": replace(PLAIN, contracts=(), findings=())}


@pytest.mark.parametrize("name", REPORTS)
def test_a_strict_parser_accepts_the_page(name: str) -> None:
    assert page(REPORTS[name]).tag == "html"


def test_foreign_text_adds_no_element() -> None:
    def shape(report: Report) -> list[str]:
        return [str(element.tag) for element in page(report).iter()]

    assert shape(HOSTILE) == shape(PLAIN)


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    root = page(HOSTILE)
    assert not [each for each in root.iter() if each.get("src") or each.tag in ("link", "iframe", "img", "object")]
    assert {str(each.get("href"))[0] for each in root.iter("a")} == {"#"}
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on") or name == "style"]
    (script,) = root.iter("script")
    (policy,) = (str(each.get("content")) for each in root.iter("meta") if each.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(str(script.text).encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_landmarks_headings_and_names_are_there_for_screen_readers() -> None:
    root = page(full(), base=PLAIN)
    for landmark in ("header", "search", "main", "footer"):
        assert len(list(root.iter(landmark))) == 1
    assert root.get("lang") == "en"
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    assert {each.get("aria-labelledby") for each in root.iter("section")} <= set(ids)
    assert {str(each.get("href"))[1:] for each in root.iter("a")} <= set(ids)
    assert [each.get("for") for each in root.iter("label")] == ["search"]
    assert all(any(True for _ in table.iter("caption")) for table in root.iter("table"))
    assert all(head.get("scope") in ("row", "col") for head in root.iter("th"))
    drawings = [each for each in root.iter() if str(each.tag).endswith("svg")]
    assert drawings and all(each.get("role") == "img" and each.get("aria-label") for each in drawings)


def test_a_page_of_ten_thousand_falsifiers_is_below_ten_megabytes() -> None:
    assert len(render(many(10_000), "html")) < 10_000_000
