"""Annotations are valid workflow commands of GitHub, each at the line that is most useful."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Location
from pv.engines.trial import Code
from pv.report import View, details, github, render
from pv.results.outcome import Outcome, Result
from pv.results.saved import report as saved
from pv.results.saved.changes import BaseComparison, Change, ChangeKind, FailOn, Hunk
from pv.results.verdict import Report, Shard
from tests.report.handmade import HOSTILE, NASTY, PLAIN, report_of_many

COMMAND = re.compile(r"::(?P<name>\w+) (?P<properties>[^:]*)::(?P<message>.*)")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Return the commands as GitHub's runner reads them: name, properties and message, without escapes."""
    # GitHub's runner splits at line feeds alone, so `splitlines` would be wrong.
    parsed = []
    for line in text.split("\n"):
        if line.lstrip().startswith("::"):
            match = COMMAND.fullmatch(line)
            assert match is not None, line
            pairs = (part.split("=", 1) for part in match["properties"].split(","))
            properties = {key: unescape(value, {"%3A": ":", "%2C": ","}) for key, value in pairs}
            parsed.append((match["name"], properties, unescape(match["message"], {})))
    return parsed


def unescape(text: str, further_escapes: dict[str, str]) -> str:
    for escape, character in {"%0D": "\r", "%0A": "\n", **further_escapes, "%25": "%"}.items():
        text = text.replace(escape, character)
    return text


@pytest.mark.parametrize("report", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_output_has_only_annotations_and_the_closing_line(report: Report) -> None:
    shown = render(report, "github")
    annotations = commands(shown)
    titles = ["PV002", *(f"{text} on cpu" for text in ("falsified: F-REFUTED", "error: F-BROKEN", "vacuous: F-BARREN"))]
    assert [(name, properties["title"]) for name, properties, _ in annotations] == [
        ("error", title) for title in titles
    ]
    assert [line for line in shown.split("\n") if not line.startswith("::")] == [
        "pv: 1 fail, 0 undecided, 0 pass, 1 notice (pv lint shows them); 1.2 s on cpu; seed 0; exit 3",
        "",
    ]


def test_message_is_complete_and_control_characters_are_escaped() -> None:
    message = commands(render(HOSTILE, "github"))[1][2]
    shown = NASTY.replace("\0", "\\x00").replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\ud800", "\\ud800")
    assert f"seen: AssertionError: {shown}" in message
    assert "\n::error::no\n" in message


def test_percent_colon_and_comma_in_a_path_are_escaped() -> None:
    place = Location(Path("a,b:c%0A.yaml"), 3, 4)
    line = github.Annotation(level="error", title="a,b::c%", message="100 %0A\rnext", location=place).line("sub dir")
    properties = {"file": "sub dir/a,b:c%0A.yaml", "line": "3", "col": "4", "title": "a,b::c%"}
    assert commands(line) == [("error", properties, "100 %0A\nnext")]


def test_at_most_ten_annotations_are_shown_worst_first() -> None:
    shown = render(report_of_many(40), "github")
    assert [properties["title"].split(":")[0] for _, properties, _ in commands(shown)] == ["falsified"] * 10
    assert "pv: 17 more annotations not shown; " in shown


RAISED, SPAN = Code("tiny.py", 4, 4, "double"), Code("tiny.py", 2, 9, "double")
HUNKS = {"tiny.py": (Hunk(old=8, removed=1, new=8, added=1),), "c.yaml": (Hunk(old=20, removed=3, new=19, added=0),)}
COMPARED = BaseComparison(changes=(), fail_on=FailOn.WEAKER, hunks=HUNKS)


def failing(*code: Code) -> tuple[Report, Result]:
    (verdict,) = PLAIN.contracts
    results = []
    for result in verdict.results:
        if result.trial is not None and result.trial.counterexample is not None:
            example = replace(result.trial.counterexample, code=code)
            result = replace(result, trial=replace(result.trial, counterexample=example))
        results.append(result)
    report = replace(PLAIN, findings=(), contracts=(replace(verdict, results=tuple(results)),))
    return report, next(result for result in results if result.falsifier.id == "F-REFUTED")


def levels(report: Report, fail_on: FailOn = FailOn.NEVER) -> tuple[list[str], list[str]]:
    """Return the levels of a report and of two weaker requirements, as annotations and as SARIF results."""
    kinds = (ChangeKind.WEAKER, ChangeKind.WAIVED)
    changes = tuple(Change(kind=kind, contract="c", text="t", location=Location(Path("c.yaml"))) for kind in kinds)
    view: Any = {"compared": BaseComparison(changes=changes, fail_on=fail_on)}
    (run,) = json.loads(render(report, "sarif", **view))["runs"]
    return [name for name, *_ in commands(render(report, "github", **view))], [r["level"] for r in run["results"]]


def test_results_that_do_not_fail_the_command_are_warnings() -> None:
    (verdict,) = PLAIN.contracts
    results = tuple(replace(result, required=False) for result in verdict.results)
    unrequired = replace(PLAIN, findings=(), contracts=(replace(verdict, results=results),))
    # Falsified, error, vacuous, weaker, waived: undecided claims that are not required are not shown.
    assert levels(unrequired) == (["error", *["warning"] * 4],) * 2
    assert levels(unrequired, FailOn.WEAKER) == (["error", "warning", "warning", "error", "warning"],) * 2


def test_changes_that_lose_something_are_annotated_and_the_notes() -> None:
    changes = tuple(Change(kind=kind, contract="c", text=kind.name) for kind in ChangeKind)
    compared = BaseComparison(changes=changes, fail_on=FailOn.NEVER, notes=("a note",))
    shown = commands(
        render(replace(PLAIN, findings=(), contracts=(), shards=(Shard(1, 1),)), "github", compared=compared)
    )
    assert [text for _, _, text in shown] == ["WEAKER", "WAIVED", "LESS", "STALE", "a note"]


def test_the_worst_outcome_of_all_contracts_comes_first() -> None:
    (verdict,) = PLAIN.contracts
    without_falsified = replace(
        verdict, results=tuple(r for r in verdict.results if r.outcome is not Outcome.FALSIFIED)
    )
    _, properties, _ = commands(render(replace(PLAIN, findings=(), contracts=(without_falsified, verdict)), "github"))[
        0
    ]
    assert properties["title"].startswith("falsified")


def test_a_failure_is_annotated_at_a_changed_line_of_any_function_that_ran() -> None:
    caller = Code("caller.py", 4, 6, "total")
    assert "::error file=tiny.py,line=8," in render(failing(caller, SPAN)[0], "github", compared=COMPARED)
    assert "::error file=caller.py,line=4," in render(failing(caller, SPAN)[0], "github")


def test_removed_clause_is_annotated_at_its_former_line() -> None:
    place = Location(Path("c.yaml"), 21, 3)
    removed_clause = Change(kind=ChangeKind.WEAKER, contract="c", text="removed", location=place, removed=True)
    assert details.change_location(removed_clause, View(compared=COMPARED)) == Location(Path("c.yaml"), 19, 1)
    assert details.change_location(removed_clause, View()) == removed_clause.location


def test_location_of_the_code_is_saved_and_in_every_format(tmp_path: Path) -> None:
    report, _ = failing(RAISED, SPAN)
    path = tmp_path / "r.json"
    path.write_text(render(report, "json"))
    read = saved.load(path)
    trial = next(result.trial for result in read.contracts[0].results if result.falsifier.id == "F-REFUTED")
    assert trial.counterexample.code == (RAISED, SPAN)
    assert "::error file=tiny.py,line=4," in render(read, "github")
    assert '<property name="code" value="tiny.py:4" />' in render(read, "junit")
    failure = json.loads(render(read, "sarif"))["runs"][0]["results"][0]
    assert failure["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "tiny.py"
    assert failure["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "c.yaml"
    replay = failure["properties"]["replay"]
    assert replay.startswith("pv validate --only F-REFUTED --replay ")
    assert replay in failure["message"]["text"]
    comment = render(read, "markdown")
    assert "`tiny.py:4`, claim at c.yaml:6:3" in comment
    assert f"- **replay**: `{replay}`" in comment
