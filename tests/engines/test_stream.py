"""Evidence shows arguments as they were before the call, also of a call that never returns."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.engines.stream import MAX_RECORD, SLOT_BYTES, Stream, current_arguments
from pv.results.outcome import Outcome
from pv.results.saved.report import load
from pv.results.verdict import Report
from tests.commands.small import result
from tests.support.projects import copy


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy("under_way", tmp_path_factory.mktemp("under_way") / "project"))
        patch.setattr("pv.engines.harness.engine.GRACE_S", 1.0)
        yield pv.validate(mutants=False)


@pytest.mark.parametrize("claim", ["DRAWN", "SYMBOLIC"])
def test_counterexample_has_the_arguments_before_the_call_and_replays(report: Report, claim: str) -> None:
    drawn = result(report, claim)
    assert drawn.outcome is Outcome.FALSIFIED, drawn.reason
    assert drawn.trial.counterexample.arguments == {"values": [0, 0, 0]}
    (line,) = (line for line in pv.render(report).splitlines() if f"--only {claim} --replay" in line)
    again = pv.validate(only=[claim], replay=shlex.split(line)[-1])
    assert result(again, claim).outcome is Outcome.FALSIFIED


@pytest.mark.parametrize(
    ("claim", "arguments"),
    [
        ("DIE", {"n": 3}),
        ("DIE-EQUATION", {"n": 3}),
        ("DIE-RUN", {"values": [1, 2, 3], "n": 3}),
        ("HANG", {"n": 0}),
        ("HANG-PROOF", {"n": 0}),
    ],
)
def test_arguments_of_calls_that_never_return_are_shown(report: Report, claim: str, arguments: dict[str, Any]) -> None:
    stuck = result(report, claim)
    assert stuck.outcome is (Outcome.UNDECIDED if claim == "HANG-PROOF" else Outcome.ERROR)
    assert stuck.trial.counterexample is None
    assert (stuck.trial.current_arguments.arguments, stuck.trial.current_arguments.exact) == (arguments, True)
    shown = pv.render(report).partition(f" {claim} on cpu ")[2].partition("\n\n")[0]
    assert f"  under way {next(iter(arguments))} = " in shown
    assert ("--replay" in shown) == (claim != "DIE-RUN")


def test_a_saved_report_keeps_the_arguments_under_way(report: Report, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(pv.render(report, "json"))
    trial, again = (result(source, "HANG").trial for source in (report, load(tmp_path / "report.json")))
    assert trial.current_arguments == again.current_arguments is not None


def test_arguments_are_kept_until_the_call_returns_and_left_out_if_they_are_too_long(tmp_path: Path) -> None:
    slot = tmp_path / "slot"
    stream = Stream(-1, slot)
    assert current_arguments(slot) is current_arguments(tmp_path / "missing") is None
    stream.begin_call({"x": "y" * SLOT_BYTES, "n": 1})
    assert current_arguments(slot) == ({"x": {"$repr": "<too long>"}, "n": {"$repr": "<too long>"}}, False)
    stream.begin_call({"n": 1}, exact=False)
    assert current_arguments(slot) == ({"n": 1}, False)
    stream.end_call()
    assert current_arguments(slot) is None
    stream.begin_call({})
    assert current_arguments(slot) is None


def test_record_that_is_too_long_has_no_arguments_and_short_texts(tmp_path: Path) -> None:
    with (tmp_path / "records").open("wb") as file:
        long = "e" * MAX_RECORD
        Stream(file.fileno()).put("end", arguments={"x": 1}, frames=["f"], error=long, valid=3, exact=True)
        Stream(file.fileno()).put("end", arguments={"x": 1}, exact=True)
    first, second = map(json.loads, (tmp_path / "records").read_text().splitlines())
    assert first == {"kind": "end", "error": "e" * 4096, "valid": 3, "exact": False}
    assert second == {"kind": "end", "arguments": {"x": 1}, "exact": True}
