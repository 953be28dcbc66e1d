"""Every format says the same of one verdict, holds whatever the code under contract said, and concludes nothing."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

from pv.errors import UsageError
from pv.loading import schema
from pv.report import FORMATS, render
from pv.verdict import Report
from tests.report.handmade import HOSTILE, NASTY, PLAIN


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("what", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_every_report_can_be_written_as_utf_8(what: Report, form: str) -> None:
    assert render(what, form).encode("utf-8").decode("utf-8").endswith("\n")


@pytest.mark.parametrize("form", FORMATS)
def test_every_report_names_every_falsifier_and_its_end(form: str) -> None:
    shown = render(PLAIN, form)
    for claim in PLAIN.contracts[0].contract.falsifiers:
        assert claim.id in shown or (form == "text" and claim.id == "F-HELD")


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        render(PLAIN, "html")
    assert str(refused.value) == "there is no format 'html'; the formats are text, json, markdown, junit"


@pytest.mark.parametrize("what", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_json_follows_its_published_schema(what: Report) -> None:
    Draft202012Validator.check_schema(schema("report"))
    Draft202012Validator(schema("report")).validate(json.loads(render(what, "json")))


def test_json_holds_what_was_said_exactly() -> None:
    said = json.loads(render(HOSTILE, "json"))
    cells = {(cell["falsifier"], cell["device"]): cell for cell in said["contracts"][0]["cells"]}
    assert cells["F-REFUTED", "cpu"]["trial"]["counterexample"]["error"] == f"AssertionError: {NASTY}"
    assert cells["F-BROKEN", "cpu"]["reason"] == NASTY
    assert said["findings"][1]["message"] == NASTY


def test_json_gives_every_cell_its_outcome_and_the_exit_code() -> None:
    said = json.loads(render(PLAIN, "json"))
    (contract,) = said["contracts"]
    assert (said["exit_code"], contract["status"], contract["mutants"]) == (
        *(3, "fail"),
        {"claimed": ["tripled"], "killed": ["tripled"]},
    )
    assert [(cell["falsifier"], cell["device"], cell["outcome"]) for cell in contract["cells"]] == [
        ("F-HELD", "cpu", "survived"),
        ("F-HELD", "cuda", "survived"),
        ("F-REFUTED", "cpu", "falsified"),
        ("F-BROKEN", "cpu", "error"),
        ("F-BARREN", "cpu", "vacuous"),
        ("F-SKIPPED", "cpu", "undecided"),
    ]


def test_a_report_of_nothing_follows_the_schema_too() -> None:
    nothing = replace(PLAIN, contracts=(), findings=(), notes=())
    said = json.loads(render(nothing, "json"))
    Draft202012Validator(schema("report")).validate(said)
    assert said["exit_code"] == 2


@pytest.mark.parametrize("what", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_junit_parses_and_counts(what: Report) -> None:
    root = ET.fromstring(render(what, "junit"))
    lint, suite = root.findall("testsuite")
    counts = ("tests", "failures", "errors", "skipped")
    assert [lint.get(count) for count in counts] == ["1", "0", "1", "0"]
    assert [suite.get(count) for count in counts] == ["6", "2", "1", "1"]
    assert [case.get("name") for case in suite] == [
        *("F-HELD[cpu]", "F-HELD[cuda]", "F-REFUTED[cpu]"),
        *("F-BROKEN[cpu]", "F-BARREN[cpu]", "F-SKIPPED[cpu]"),
    ]


def test_junit_shows_what_xml_cannot_hold_as_a_replacement() -> None:
    root = ET.fromstring(render(HOSTILE, "junit"))
    failure = root.find("testsuite[@name='c']/testcase[@name='F-REFUTED[cpu]']/failure")
    assert failure is not None
    message = failure.get("message")
    assert message is not None
    assert message.startswith("AssertionError: a\ufffdb\ufffd[31mred\ufffd\ufffd <b>&amp;]]> | `x` *y* [z](u)\u2028")


def test_the_summary_has_its_denominators() -> None:
    said = json.loads(render(PLAIN, "json"))
    assert said["contracts"][0]["summary"] == (
        "1 of 5 falsifiers survived, CUDA 1 of 1 (recorded on NVIDIA H200, 2026-11-20), 1 of 1 mutants killed"
    )
