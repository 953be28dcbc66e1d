"""A failure is shown at the changed line of its code, else at its code, else at its claim."""

import json
from dataclasses import replace
from pathlib import Path

from pv.contract.finding import Location
from pv.report import View, places, render
from pv.results.outcome import Result
from pv.results.saved import report as saved
from pv.results.saved.changes import Change, ChangeKind
from pv.results.saved.gate import Compared, FailOn
from pv.results.saved.hunks import Hunk
from pv.results.trial import Code
from pv.results.verdict import Report
from tests.report.handmade import PLAIN

RAISED, SPAN = Code("tiny.py", 4, 4, "double"), Code("tiny.py", 2, 9, "double")
HUNKS = {"tiny.py": (Hunk(old=8, removed=1, new=8, added=1),), "c.yaml": (Hunk(old=20, removed=3, new=19, added=0),)}
COMPARED = Compared(changes=(), fail_on=FailOn.WEAKER, hunks=HUNKS)


def failing(*code: Code) -> tuple[Report, Result]:
    (verdict,) = PLAIN.contracts
    results = []
    for result in verdict.results:
        if result.trial is not None and result.trial.counterexample is not None:
            found = replace(result.trial.counterexample, code=code)
            result = replace(result, trial=replace(result.trial, counterexample=found))
        results.append(result)
    report = replace(PLAIN, findings=(), contracts=(replace(verdict, results=tuple(results)),))
    return report, next(result for result in results if result.falsifier.id == "F-REFUTED")


def test_what_is_gone_is_shown_where_it_was() -> None:
    place = Location(Path("c.yaml"), 21, 3)
    gone = Change(kind=ChangeKind.WEAKER, contract="c", text="removed", location=place, removed=True)
    assert places.of_change(gone, View(compared=COMPARED)) == Location(Path("c.yaml"), 19, 1)
    assert places.of_change(gone, View()) == gone.location


def test_the_code_is_saved_and_every_format_names_it(tmp_path: Path) -> None:
    report, _ = failing(RAISED, SPAN)
    path = tmp_path / "r.json"
    path.write_text(render(report, "json"))
    read = saved.load(path)
    trial = next(each.trial for each in read.contracts[0].results if each.falsifier.id == "F-REFUTED")
    assert trial.counterexample.code == (RAISED, SPAN)
    assert "::error file=tiny.py,line=4," in render(read, "github")
    assert '<property name="code" value="tiny.py:4" />' in render(read, "junit")
    found = json.loads(render(read, "sarif"))["runs"][0]["results"][0]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "tiny.py"
    assert found["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "c.yaml"
    replay = found["properties"]["replay"]
    assert replay.startswith("pv validate --only F-REFUTED --replay ")
    assert replay in found["message"]["text"]
    comment = render(read, "markdown")
    assert "`tiny.py:4`, claim at c.yaml:6:3" in comment
    assert f"- **replay**: `{replay}`" in comment
