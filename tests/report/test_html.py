"""The page is valid HTML, loads nothing, escapes all text, and is usable without a mouse or colors."""

import base64
import hashlib
from dataclasses import replace
from datetime import date
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import pytest

from pv.engines.trial import EquationMutants, TrialStatus
from pv.report import render
from pv.report.html import charts
from pv.report.html.markup import tag
from pv.report.html.page import evidence as source
from pv.report.html.page import kill_matrix, section
from pv.results.evidence import RunTrace
from pv.results.outcome import Selection
from pv.results.saved.changes import BaseComparison, Change, ChangeKind, FailOn, compare
from pv.results.verdict import ContractVerdict, Report, decide
from tests.report.handmade import HOSTILE, NASTY, PLAIN, REPORTS
from tests.results.handmade import contract, evidence, falsifier, judged, trial
from tests.results.saved.test_report import full


def page(report: Report, **options: Any) -> Element:
    return parse(render(report, "html", **options))


def parse(text: str) -> Element:
    root: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    return root


def fragment(text: str) -> Element:
    """Return a part of a page inside a new element."""
    # A strict parser refuses a document without a title.
    head = "<!doctype html><html><head><title>t</title></head><body>"
    return parse(f"{head}{text}</body></html>").find("body")


def text_of(element: Element) -> str:
    """Return the text of an element with single spaces."""
    return " ".join(" ".join(element.itertext()).split())


@pytest.mark.parametrize("report", [*REPORTS.values(), full()], ids=[*REPORTS, "full"])
def test_a_strict_parser_accepts_the_page(report: Report) -> None:
    assert page(report).tag == "html"


def test_user_text_adds_no_element_and_the_page_loads_nothing() -> None:
    root = page(HOSTILE)
    assert [element.tag for element in root.iter()] == [element.tag for element in page(PLAIN).iter()]
    assert not [
        element for element in root.iter() if element.get("src") or element.tag in ("link", "iframe", "img", "object")
    ]
    assert {str(element.get("href"))[0] for element in root.iter("a")} == {"#"}
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or name == "style"]
    (script,) = root.iter("script")
    (policy,) = (str(element.get("content")) for element in root.iter("meta") if element.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(str(script.text).encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_page_has_landmarks_headings_and_names_for_screen_readers() -> None:
    root = page(full(), compared=compare(PLAIN, full(), fail_on=FailOn.NEVER, today=date.today()))
    for landmark in ("header", "search", "main", "footer"):
        assert len(list(root.iter(landmark))) == 1
    assert root.get("lang") == "en"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert {element.get("aria-labelledby") for element in root.iter("section")} <= set(ids)
    assert {str(element.get("href"))[1:] for element in root.iter("a")} <= set(ids)
    assert [element.get("for") for element in root.iter("label")] == ["search"]
    assert all(any(True for _ in table.iter("caption")) for table in root.iter("table"))
    assert all(head.get("scope") in ("row", "col") for head in root.iter("th"))
    drawings = [element for element in root.iter() if str(element.tag).endswith("svg")]
    assert drawings and all(drawing.get("role") == "img" and drawing.get("aria-label") for drawing in drawings)


def test_weakenings_that_fail_the_comparison_are_counted_beside_the_verdicts() -> None:
    weaker = Change(kind=ChangeKind.WEAKER, contract="c", text="t")
    for fail_on, extra in ((FailOn.WEAKER, ["1 ✗ weaker"]), (FailOn.NEVER, [])):
        root = page(PLAIN, compared=BaseComparison(changes=(weaker,), fail_on=fail_on))
        (tiles,) = [element for element in root.iter("ul") if element.get("class") == "tiles"]
        assert ["".join(tile.itertext()) for tile in tiles][3:] == extra
        (title,) = ["".join(element.itertext()) for element in root.iter("title")]
        assert title.endswith(", 1 weaker") == bool(extra)


@pytest.mark.parametrize("text", ["<script>x</script>", '"', "'", "&amp;", "</p>", "]]>", NASTY.replace("\ud800", "")])
def test_text_is_shown_unchanged(text: str) -> None:
    (element,) = fragment(tag("p", text, title=text))
    shown = text.replace("\0", "\\x00").replace("\x1b", "\\x1b").replace("\x07", "\\x07")
    assert (element.text, element.get("title"), len(element)) == (shown, shown, 0)


def test_failures_are_articles_worst_first_and_results_have_outcome_and_evidence() -> None:
    body = fragment(section(PLAIN.contracts[0], PLAIN, 0))
    assert [text_of(element) for article in body.iter("article") for element in article.iter("h3")] == [
        "✗ falsified F-REFUTED on cpu",
        "! error F-BROKEN on cpu",
        "○ vacuous F-BARREN on cpu",
    ]
    assert "with number = 1 values = tensor([nan], float32)" in text_of(next(body.iter("article")))
    table = list(body.iter("table"))[-1]
    rows = [[text_of(cell) for cell in row] for row in table.iter("tr")]
    assert rows[1][:3] == ["✓ held", "F-HELD", "cpu"]
    assert rows[1][3:5] == ["100 valid examples (3 rejected), seed 7, 0.25 s", "measured now"]
    assert rows[2][4] == "recorded on NVIDIA H200, torch 2.11.0, 2026-11-20 (0 days before this report)"
    (record,) = (result for result in PLAIN.contracts[0].results if result.recorded)
    assert source(record, replace(PLAIN, started="2026-11-19")).endswith(", 2026-11-20"), "newer than the report"
    assert [row[0] for row in rows[3:]] == ["✗ falsified", "! error", "○ vacuous", "? undecided"]


def rows(verdict: ContractVerdict) -> list[list[str]]:
    table = fragment(kill_matrix(verdict))
    return [[text_of(cell) for cell in row] for row in table.iter("tr")]


def test_kill_matrix_has_equation_mutants_of_a_claim_on_several_devices() -> None:
    claim = falsifier("E", kills=(), devices=("cpu", "cuda"))
    killed = trial(id_="E", equation_mutants=EquationMutants(total=2, killed=2))
    verdict = decide(
        contract(claim, mutants=()),
        evidence(killed, trial(id_="E", device="cuda")),
        Selection(devices=("cpu", "cuda")),
    )
    assert rows(verdict) == [["falsifier", "equation mutants"], ["E", "2 of 2 killed"]]


def test_kill_matrix_has_the_status_of_every_pair() -> None:
    claims = (falsifier("F", kills=("m", "n")), falsifier("G"), falsifier("H", kills=("n",)))
    trials = evidence(
        *(trial(id_=id_) for id_ in "FGH"),
        judged(id_="F"),
        judged(TrialStatus.HELD, id_="F", mutant="n"),
        judged(TrialStatus.ERROR, id_="G"),
    )
    assert rows(decide(contract(*claims), trials, Selection())) == [
        ["falsifier", "m", "n"],
        ["F", "✓ killed", "✗ survived"],
        ["G", "– not judged", "not named"],
        ["H", "not named", "· not tried"],
    ]


TRACE = RunTrace(
    run="real-text",
    device="cpu",
    seconds=61.27,
    events=(("begin", 1), ("step", 3), ("<b>", 1), ("step", 5)),
    losses=((1.0, 4.0), (2.0, 1.0), (4.0, 2.0)),
)


def test_curve_is_scaled_to_its_box_and_described_as_text() -> None:
    figure = fragment(charts.run(TRACE))
    curve, strip = (element for element in figure.iter() if str(element.tag).endswith("svg"))
    (line,) = (element for element in curve if str(element.tag).endswith("polyline"))
    assert line.get("points") == "20.0,20.0 220.0,160.0 620.0,113.3"
    description = "Loss 4 at step 1, 2 at step 4, lowest 1."
    assert curve.get("role") == "img" and description in str(curve.get("aria-label"))
    (caption,) = figure.iter("figcaption")
    assert text_of(caption) == f"Reference run real-text on cpu, 61.27 s. {description}"
    assert strip.get("aria-label") == "Reference run real-text on cpu: order of 10 events"
    many = replace(TRACE, events=(("step", 1), ("save", 1)) * 31)
    assert text_of(fragment(charts.run(many))).endswith(" → step → save … 2 more")


def test_step_of_a_long_run_is_written_in_full() -> None:
    figure = charts.run(replace(TRACE, losses=((1.0, 4.0), (1_234_567.0, 2.0))))
    assert "at step 1234567," in figure and ">step 1234567<" in figure
