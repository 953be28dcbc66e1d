"""What a report says of an attack by an equation: how many changes of it were seen, which were not, on what terms."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pv.cells import Outcome, Selection
from pv.evidence import Change, Changes, Ending, Evidence, Trial
from pv.loading import schema
from pv.model import Contract, Equation, Falsifier, Target, Where
from pv.report import FORMATS, render
from pv.verdict import Report, Status, decide

MISSED = Change(equation="double", line=1, column=5, before="2 * n", after="2 + n")
CLAIM = Falsifier(
    id="F-E", rule="r", prediction="p", if_fails="i", where=Where(Path("c.yaml"), 9, 3), test=None, equation="double"
)


def equation(**executable: object) -> Equation:
    def place(line: int, column: int) -> Where:
        return Where(Path("c.yaml"), line + 2, column + 10)

    return Equation(name="double", where=Where(Path("c.yaml"), 3), executable=executable, texts={"expression": place})


def report(changes: Changes | None, **executable: object) -> Report:
    held = Trial(falsifier="F-E", device="cpu", ending=Ending.HELD, valid=100, reached=frozenset({"a"}))
    contract = Contract(
        id="c",
        version="1.0.0",
        description="d",
        where=Where(Path("c.yaml")),
        strict=True,
        subject=Target("tiny"),
        equations=(equation(**executable),),
        falsifiers=(CLAIM,),
    )
    evidence = Evidence(trials={("F-E", "cpu"): replace(held, changes=changes)})
    return Report(
        contracts=(decide(contract, evidence, Selection()),),
        findings=(),
        devices={},
        seed=0,
        seconds=1.0,
        started="2026-11-20T12:00:00+00:00",
        version="0.1.0",
        python="3.11.7",
        hypothesis="6.0",
    )


def test_an_attack_that_sees_no_change_of_its_equation_is_vacuous() -> None:
    found = report(Changes(told_apart=0, total=3, survivors=(MISSED,)))
    (verdict,) = found.contracts
    (cell,) = verdict.cells
    assert (verdict.status, cell.outcome) == (Status.FAIL, Outcome.VACUOUS)
    assert cell.reason == "it tells none of 3 changes of its equation from it"
    assert "survivor  c.yaml:3:15 double: 2 + n for 2 * n" in render(found, "text")


def test_an_attack_that_sees_one_change_needs_no_other_mutant() -> None:
    (verdict,) = report(Changes(told_apart=1, total=3)).contracts
    assert (verdict.status, verdict.cells[0].outcome) == (Status.PASS, Outcome.SURVIVED)


@pytest.mark.parametrize("changes", [None, Changes(told_apart=0, total=0)])
def test_an_attack_whose_equation_cannot_be_changed_needs_one(changes: Changes | None) -> None:
    (verdict,) = report(changes).contracts
    assert (verdict.status, verdict.cells[0].outcome) == (Status.UNDECIDED, Outcome.UNDECIDED)
    assert verdict.cells[0].reason == "no automatic mutant was judged"


def test_the_changes_that_were_seen_are_counted_in_the_summary() -> None:
    assert "1 of 2 changes of equations told apart" in render(report(Changes(told_apart=1, total=2)), "text")


def test_markdown_names_those_that_were_not() -> None:
    shown = render(report(Changes(told_apart=1, total=2, survivors=(MISSED,))), "markdown")
    assert "100 valid examples, 1 of 2 changes of its equation told apart, seed 0" in shown
    assert "Changes of its equation that `F-E` did not tell apart:\n\n- c.yaml:3:15 double: 2 + n for 2 \\* n" in shown


def test_json_has_them_with_their_place_and_fits_its_schema() -> None:
    data = json.loads(render(report(Changes(told_apart=1, total=2, survivors=(MISSED,))), "json"))
    Draft202012Validator(schema("report")).validate(data)
    assert data["contracts"][0]["cells"][0]["trial"]["changes"] == {
        "told_apart": 1,
        "total": 2,
        "survivors": [{"equation": "double", "line": 1, "column": 5, "before": "2 * n", "after": "2 + n"}],
    }


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_tolerance_that_somebody_set_is_shown_with_its_reason(form: str) -> None:
    set_ = report(None, tolerance={"relative": 1e-3, "absolute": 0, "why": "a table of 10 bits"})
    said = "the tolerance of double is set, relative 0.001, absolute 0: a table of 10 bits"
    assert said in render(set_, form)


@pytest.mark.parametrize("form", FORMATS)
def test_no_report_speaks_of_a_tolerance_that_was_measured(form: str) -> None:
    assert "tolerance" not in render(report(None), form)
