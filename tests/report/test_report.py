"""Every registered format shows every falsifier, and JSON follows its schema; lists and comparisons."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import pv
from pv.contract.finding import Location
from pv.contract.load import schema
from pv.errors import UsageError
from pv.report import FORMATS, details, listing, matrix, render
from pv.results.comparison import Column, Comparison
from pv.results.verdict import Report
from tests.report.handmade import HOSTILE, NASTY, PLAIN, REPORTS, report_of_many
from tests.results.handmade import contract, falsifier
from tests.support.calls import count_calls

SHORT = ("text", "sarif")
"""Formats that show only failures; annotations show only the worst failures."""


@pytest.mark.parametrize("form", FORMATS)
def test_every_report_names_every_falsifier(form: str) -> None:
    shown = render(PLAIN, form)
    assert shown.endswith("\n")
    for claim in PLAIN.contracts[0].contract.falsifiers:
        assert claim.id in shown or (form in SHORT and claim.id == "F-HELD") or form == "github"


def test_unknown_format_error_lists_the_formats() -> None:
    with pytest.raises(UsageError) as refused:
        render(PLAIN, "pdf")
    assert str(refused.value) == f"unknown format 'pdf' (choose from {', '.join(FORMATS)})"


@pytest.mark.parametrize("form", FORMATS)
def test_thousands_of_falsifiers_take_linear_time(form: str) -> None:
    few_calls, many_calls = (_calls(report_of_many(number), form) for number in (150, 1_500))
    assert many_calls < 11 * few_calls


def _calls(report: Report, form: str) -> int:
    render(report, form)  # fills the caches
    return count_calls(lambda: render(report, form))


def test_json_follows_its_published_schema() -> None:
    Draft202012Validator.check_schema(schema("report"))
    for report in REPORTS.values():
        Draft202012Validator(schema("report")).validate(json.loads(render(report, "json")))


def test_the_command_that_repeats_a_result_is_quoted_and_complete() -> None:
    (verdict,) = PLAIN.contracts
    result = next(result for result in verdict.results if result.falsifier.id == "F-REFUTED")
    odd = replace(result, falsifier=replace(result.falsifier, id="a b"), device="cuda")
    commands = {("pv validate", "--seed 3"): "pv validate --seed 3 --only 'a b' --device cuda"}
    commands |= {("pv check", words): f"pv check {words}" for words in ("-- python train.py", "--trace folder")}
    for repeat, command in commands.items():
        assert details.command(odd, replace(verdict, repeat=repeat)) == command
    own = replace(result, falsifier=replace(result.falsifier, location=Location(Path("pv/suites/a.yaml"), 2, 1)))
    assert details.claim_location(own) == "pv/suites/a.yaml:2:1", "a suite in a clone of pv"
    replayed = replace(verdict, repeat=("pv validate", "--replay x"))
    assert [*dict(details.lines(result, verdict))][-2:] == ["rerun", "replay"]
    assert [*dict(details.lines(result, replayed))][-1] == "rerun", "a replay is not replayed"


def test_json_has_messages_unchanged() -> None:
    shown = json.loads(render(HOSTILE, "json"))
    results = {(result["falsifier"], result["device"]): result for result in shown["contracts"][0]["results"]}
    assert results["F-REFUTED", "cpu"]["trial"]["counterexample"]["error"] == f"AssertionError: {NASTY}"
    assert results["F-BROKEN", "cpu"]["reason"] == NASTY
    assert shown["findings"][1]["message"] == NASTY


CONTRACTS = pv.load([Path(__file__).parents[2] / "contracts"]).contracts


def test_json_list_has_every_claim_with_its_test() -> None:
    listed = {item["id"]: item for item in json.loads(listing.render(CONTRACTS, "json"))}
    assert listed.keys() == {contract.id for contract in CONTRACTS}
    (harness,) = (item for item in listed["distill-smoke"]["harnesses"] if item["id"] == "H-LIMIT-COUNT-001")
    assert (harness["requires"], harness["engine"], harness["bounds"]["limit"]) == ("", "", "1..64")
    requires = {item["id"]: item["requires"] for contract in listed.values() for item in contract["harnesses"]}
    assert requires["H-SCHEDULE-STEPS-001"] == "epoch <= epochs and done <= per_epoch"
    assert harness["predicate"] == "falsifiers/distill_smoke/prove_steps.py::prove_early_break_is_exact"
    (equation,) = (item for item in listed["kd-loss"]["falsifiers"] if item["id"] == "F-KD-EQUATION-002")
    assert (equation["test"], equation["equation"]) == (None, "kd_gradient")


MISSING = Column(name="peer", target="theirs", missing="its package is not installed")
COMPARISON = Comparison(contract=contract(falsifier()), columns=(MISSING,))


def test_text_shows_a_missing_subject_with_its_reason_and_undecided_results() -> None:
    lines = matrix.render(COMPARISON).splitlines()
    assert lines[:2] == ["c 1.0.0", "  peer: theirs: undecided: its package is not installed"]
    assert lines[3:5] == ["   peer", "F  undecided"]
    assert lines[-1] == "1 subject, 0.0 s; seed none; exit 2"
