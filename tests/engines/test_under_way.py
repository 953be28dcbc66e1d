"""Evidence shows arguments as they were before the call, also of a call that never returns."""

import shlex
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.results.outcome import Outcome
from pv.results.saved.report import load
from pv.results.verdict import Report
from tests.commands.small import result
from tests.support.projects import write

SUBJECT = """
import os

def drain(values):
    count = len(values)
    values.clear()
    return count != 3

def die(n):
    if n == 3:
        os._exit(0)
    return n

def halve(n):
    while n != 1:
        n = n // 2 if n > 0 else n
    return n
"""
TESTS = """
from hypothesis import given, strategies as st

lists = st.lists(st.integers(0, 3), max_size=5)

@given(data=st.data())
def falsify_drawn(subject, data):
    assert subject.drain(data.draw(lists, "values"))

def prove_drain(subject, values):
    return subject.drain(values)

@given(n=st.integers(0, 9))
def falsify_die(subject, n):
    subject.die(n)

@given(n=st.integers(0, 1))
def falsify_halve(subject, n):
    assert subject.halve(n) == 1

def prove_halve(subject, n):
    return subject.halve(n) == 1

def start(subject, *, device, directory, trace, values, n):
    subject.drain(values)
    subject.die(n)
    return {}

def falsify_run(run):
    assert not run.arguments["values"] == [1, 2, 3]
"""
CONTRACT = """
schema: pv/1
metadata: {id: c, version: 1.0.0, description: d, references: [r]}
subject: lib
equations:
  die: {domain: {n: int 0..9}, expression: n, implemented_by: die(n)}
runs:
- {name: dies, callable: "falsify_lib.py::start", arguments: {values: [1, 2, 3], n: 3}, small: {values: [], n: 1}}
falsifiers:
- {id: DRAWN, rule: r, prediction: p, if_fails: f, test: "falsify_lib.py::falsify_drawn"}
- {id: DIE, rule: r, prediction: p, if_fails: f, test: "falsify_lib.py::falsify_die"}
- {id: DIE-EQUATION, equation: die, rule: r, prediction: p, if_fails: f}
- {id: DIE-RUN, rule: r, prediction: p, if_fails: f, test: "falsify_lib.py::falsify_run", run: dies}
- {id: HANG, rule: r, prediction: p, if_fails: f, test: "falsify_lib.py::falsify_halve", limit: 2}
harnesses:
- {id: SYMBOLIC, rule: r, if_fails: f, predicate: "falsify_lib.py::prove_drain", engine: symbolic, bounds:
    {values: "list of int 0..1, at most 4"}, kills: [m]}
- {id: HANG-PROOF, rule: r, if_fails: f, predicate: "falsify_lib.py::prove_halve", engine: exhaustive, limit: 1, bounds:
    {n: 0..1}, kills: [m]}
mutants:
- {id: m, fault: f, edit: {function: "lib:drain", find: "3", replace: "4"}}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("under_way")
    write(folder, {"lib.py": SUBJECT, "falsify_lib.py": TESTS, "contracts/c.yaml": CONTRACT.lstrip()})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("pv.engines.kinds.harness.GRACE_S", 1.0)
        yield pv.validate(mutants=False)


@pytest.mark.parametrize("claim", ["DRAWN", "SYMBOLIC"])
def test_a_counterexample_is_what_was_given_and_replays(report: Report, claim: str) -> None:
    found = result(report, claim)
    assert found.outcome is Outcome.FALSIFIED, found.reason
    assert found.trial.counterexample.arguments == {"values": [0, 0, 0]}
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
    found = result(report, claim)
    assert found.outcome is (Outcome.UNDECIDED if claim == "HANG-PROOF" else Outcome.ERROR)
    assert found.trial.counterexample is None
    assert (found.trial.under_way.arguments, found.trial.under_way.exact) == (arguments, True)
    shown = pv.render(report).partition(f" {claim} on cpu ")[2].partition("\n\n")[0]
    assert f"  under way {next(iter(arguments))} = " in shown
    assert ("--replay" in shown) == (claim != "DIE-RUN")


def test_a_saved_report_keeps_the_arguments_under_way(report: Report, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(pv.render(report, "json"))
    trial, again = (result(each, "HANG").trial for each in (report, load(tmp_path / "report.json")))
    assert trial.under_way == again.under_way is not None
