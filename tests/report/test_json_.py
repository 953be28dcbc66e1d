"""The JSON report follows its schema and keeps every message exactly."""

import json
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from pv.contract.load import schema
from pv.report import render
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, NASTY, PLAIN


@pytest.mark.parametrize("report", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_json_follows_its_published_schema(report: Report) -> None:
    Draft202012Validator.check_schema(schema("report"))
    Draft202012Validator(schema("report")).validate(json.loads(render(report, "json")))


def test_json_holds_messages_exactly() -> None:
    shown = json.loads(render(HOSTILE, "json"))
    results = {(result["falsifier"], result["device"]): result for result in shown["contracts"][0]["results"]}
    assert results["F-REFUTED", "cpu"]["trial"]["counterexample"]["error"] == f"AssertionError: {NASTY}"
    assert results["F-BROKEN", "cpu"]["reason"] == NASTY
    assert shown["findings"][1]["message"] == NASTY


def test_a_report_of_nothing_follows_the_schema_too() -> None:
    nothing = replace(PLAIN, contracts=(), findings=(), notes=())
    shown = json.loads(render(nothing, "json"))
    Draft202012Validator(schema("report")).validate(shown)
    assert shown["exit_code"] == 2
