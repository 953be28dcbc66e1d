"""Every format says the same of one verdict, holds whatever the code under contract said, and concludes nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

from pv.cells import Selection
from pv.errors import UsageError
from pv.evidence import Counterexample, DeviceInfo, Ending, Evidence, Output, Recorded, Trial
from pv.loading import schema
from pv.model import Binding, Contract, Edit, Falsifier, Finding, Mutant, Severity, Target, Where
from pv.report import FORMATS, render
from pv.verdict import Report, decide

NASTY = "a\0b\x1b[31mred\x07\ud800 <b>&amp;]]> | `x` *y* [z](u)\u2028```\n::error::no\n````\nend"
MUTANT = Mutant(
    id="tripled",
    fault="three",
    change=Edit(function=Target("tiny", "double"), find="2", replace="3"),
    where=Where(Path("c.yaml"), 20, 3),
)


def falsifier(id_: str, text: str, line: int, devices: tuple[str, ...] = ("cpu",)) -> Falsifier:
    return Falsifier(
        id=id_,
        rule=f"rule {text}",
        prediction=f"prediction {text}",
        if_fails=f"usually {text}",
        where=Where(Path("c.yaml"), line, 3),
        test=Binding("falsifiers/falsify_tiny.py", "falsify_double"),
        devices=devices,
        kills=("tripled",),
    )


def trial(id_: str, ending: Ending, **fields: Any) -> Trial:
    return Trial(falsifier=id_, device="cpu", ending=ending, reached=frozenset({"tiny:double"}), seed=7, **fields)


def found(text: str) -> Counterexample:
    return Counterexample(
        arguments={"number": 1, "values": {"$tensor": {"dtype": "float32", "shape": [1], "data": [{"$float": "nan"}]}}},
        exact=True,
        error=f"AssertionError: {text}",
        frames=(f"falsifiers/falsify_tiny.py:9 in falsify_double: {text}",),
        shrunk=True,
        blob="AAE=",
        hypothesis="6.0",
    )


def recorded(id_: str) -> Recorded:
    return Recorded(
        falsifier=id_,
        device="cuda",
        ending=Ending.HELD,
        valid=100,
        detail="",
        when="2026-11-20",
        hardware=DeviceInfo(name="NVIDIA H200", torch="2.11.0"),
        commit="abc",
    )


def report(text: str) -> Report:
    """One falsifier of each kind of end, with `text` wherever somebody else's words can stand."""
    claims = (
        falsifier("F-HELD", text, 5, ("cpu", "cuda")),
        falsifier("F-REFUTED", text, 6),
        falsifier("F-BROKEN", text, 7),
        falsifier("F-BARREN", text, 8),
        falsifier("F-SKIPPED", text, 9),
    )
    contract = Contract(
        id="c",
        version="1.0.0",
        description=text,
        where=Where(Path("c.yaml")),
        strict=True,
        falsifiers=claims,
        mutants=(MUTANT,),
    )
    printed = text.replace("\ud800", "")  # a worker's output is decoded, so it has no half surrogates
    trials = (
        trial("F-HELD", Ending.HELD, valid=100, invalid=3, seconds=0.25),
        trial("F-REFUTED", Ending.REFUTED, valid=12, counterexample=found(text)),
        trial("F-BROKEN", Ending.BROKEN, detail=text, output=Output(head=printed, size=len(printed.encode()))),
        trial("F-BARREN", Ending.BARREN, detail=text),
        trial("F-SKIPPED", Ending.SKIPPED, detail=text),
    )
    evidence = Evidence(
        trials={(t.falsifier, t.device): t for t in trials},
        mutants={("F-HELD", "tripled"): trial("F-HELD", Ending.REFUTED, mutant="tripled", counterexample=found(text))},
        recorded={("F-HELD", "cuda"): recorded("F-HELD")},
    )
    notice = Finding(code="PV201", severity=Severity.NOTICE, where=Where(Path("d.yaml"), 2, 1), message=text)
    refusal = Finding(
        code="PV002", severity=Severity.REFUSAL, where=Where(Path("e.yaml"), 3, 4), message=text, hint=text
    )
    return Report(
        contracts=(decide(contract, evidence, Selection()),),
        findings=(notice, refusal),
        devices={"cpu": DeviceInfo(torch="2.13.0")},
        seed=0,
        seconds=1.25,
        started="2026-11-20T12:00:00+00:00",
        version="0.1.0",
        python="3.11.7",
        hypothesis="6.0",
        notes=(text,),
    )


PLAIN, HOSTILE = report("plainly said"), report(NASTY)


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
    assert len(re.findall("^### ", outside, re.MULTILINE)) == len(
        re.findall("^### ", unfenced(render(PLAIN, "markdown")), re.MULTILINE)
    )
    assert re.search(r"(?<!\\)<b>", outside) is None
    assert re.search(r"(?<!\\)\[z\]\(", outside) is None


def test_markdown_keeps_every_row_of_a_table_in_its_columns() -> None:
    for what in (PLAIN, HOSTILE):
        rows = [line for line in unfenced(render(what, "markdown")).split("\n") if line.startswith("| `F-")]
        assert len(rows) == 6
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_markdown_names_that_end_code_font_are_escaped() -> None:
    verdict = PLAIN.contracts[0]
    claim = replace(verdict.contract.falsifiers[0], id="a`|b")
    cells = tuple(replace(cell, falsifier=claim) for cell in verdict.cells)
    shown = render(replace(PLAIN, contracts=(replace(verdict, cells=cells),)), "markdown")
    assert "| a\\`\\|b | cpu |" in shown


def test_text_is_plain_where_there_is_no_terminal() -> None:
    assert "\x1b" not in render(PLAIN, "text")
    assert "\x1b[" in render(PLAIN, "text", color=True)


@pytest.mark.parametrize("color", [False, True])
def test_text_lets_nothing_steer_the_terminal(color: bool) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", render(HOSTILE, "text", color=color).replace("\x1b[31mred", "\x1b!"))
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown) == []
    assert "a\\x00b\\x1b[31mred\\x07" in shown.replace("\n", "").replace(" " * 12, "")


def test_text_shows_the_worst_first_with_all_a_reader_needs() -> None:
    lines = render(PLAIN, "text", width=200).splitlines()
    assert lines[0].startswith("FAIL       c 1.0.0: ")
    heads = [line for line in lines if re.match("[A-Z]+ +F-", line)]
    assert [head.split()[:2] for head in heads] == [
        ["FALSIFIED", "F-REFUTED"],
        ["ERROR", "F-BROKEN"],
        ["VACUOUS", "F-BARREN"],
        ["UNDECIDED", "F-SKIPPED"],
    ]
    assert heads[0] == "FALSIFIED  F-REFUTED on cpu  c.yaml:6:3"
    start = lines.index(heads[0])
    assert lines[start + 1 : start + 12] == [
        "  claim     rule plainly said",
        "  predicted prediction plainly said",
        "  seen      AssertionError: plainly said",
        "  with      number = 1",
        "            values = tensor([nan], float32)",
        "  at        falsifiers/falsify_tiny.py:9 in falsify_double: plainly said",
        "  usually   usually plainly said",
        "  tried     12 valid examples, seed 7, 0.00 s",
        "  repeat    pv validate --only F-REFUTED",
        "  replay    pv validate --only F-REFUTED --replay 6.0:AAE=",
        "",
    ]


def test_text_counts_notices_and_shows_refusals() -> None:
    shown = render(PLAIN, "text", width=200)
    assert "refusal    e.yaml:3:4 PV002 plainly said; plainly said\n" in shown
    assert "PV201" not in shown
    assert shown.splitlines()[-1] == (
        "1 fail, 0 undecided, 0 pass, 1 notice (pv lint shows them); 1.2 s on cpu; seed 0; exit 3"
    )


def test_the_summary_has_its_denominators() -> None:
    said = json.loads(render(PLAIN, "json"))
    assert said["contracts"][0]["summary"] == (
        "1 of 5 falsifiers survived, CUDA 1 of 1 (recorded on NVIDIA H200, 2026-11-20), 1 of 1 mutants killed"
    )
