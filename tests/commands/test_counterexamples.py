"""A counterexample names the code that it is about, and is kept in a file where it is too long for a command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.commands.counterexamples import locate_code, write_replays
from pv.contract.load import load
from pv.contract.model import Equation, Target
from pv.engines.trial import Counterexample, TrialStatus
from pv.source.project import find_project
from tests.results.handmade import FOUND, HERE, evidence, falsifier, trial
from tests.support.projects import Project

REACHED = frozenset({"counting:count", "counting:total", "counting:total@9", "counting:gone"})
COUNT, TOTAL = ("counting.py", 11, 12, "count"), ("counting.py", 6, 8, "total")


@pytest.mark.parametrize(
    ("claim", "frames", "code"),
    [
        ("C-LIMIT", (), [TOTAL, COUNT]),  # its test calls `total`
        ("C-RUN", (), [COUNT, TOTAL]),
        (
            "C-LIMIT",
            ("counting.py:12 in count: a", "counting.py:8 in total: b", "falsifiers/falsify_counting.py:15 in f: c"),
            [("counting.py", 8, 8, "total"), TOTAL, COUNT],
        ),
    ],
)
def test_the_line_that_raised_comes_first_then_the_functions_that_the_test_calls(
    project: Project, claim: str, frames: tuple[str, ...], code: list[Any]
) -> None:
    folder = project("small")
    (contract,) = load(["contracts"]).contracts
    refutation = trial(TrialStatus.REFUTED, claim, counterexample=replace(FOUND, frames=frames), reached=REACHED)
    located = locate_code(find_project(folder), contract, evidence(refutation, trial(id_="C-WHOLE"))).trials
    spans = located[claim, "cpu"].counterexample.code
    assert [(span.path, span.line, span.end, span.name) for span in spans] == code
    assert located["C-WHOLE", "cpu"] == trial(id_="C-WHOLE")
    equation = Equation(name="e", location=HERE, executable={"implemented_by": "total(n, 2)"})
    of_equation = replace(contract, falsifiers=(falsifier(claim, test=None, equation="e"),), equations=(equation,))
    again = locate_code(find_project(folder), of_equation, evidence(replace(refutation, counterexample=FOUND))).trials
    assert [span.name for span in again[claim, "cpu"].counterexample.code] == ["total", "count"]
    with (folder / "counting.py").open("a") as code_file:
        code_file.write("\n\nclass meter:\n    def total(self, n, m): ...\n")
    of_class = replace(of_equation, subject=Target("counting", "meter"))
    found = evidence(replace(refutation, counterexample=FOUND, reached=REACHED | {"counting:meter.total"}))
    last = locate_code(find_project(folder), of_class, found).trials[claim, "cpu"].counterexample.code
    assert [span.name for span in last] == ["meter.total", "count", "total"]


LONG = Counterexample(arguments={"n": "x" * 100_000}, exact=True, error="")


@pytest.mark.parametrize("key", ["counterexample", "current_arguments"])
@pytest.mark.parametrize(("example", "is_written"), [(FOUND, False), (LONG, True), (replace(LONG, exact=False), False)])
def test_long_arguments_are_written_to_a_file(
    project: Project, key: str, example: Counterexample, is_written: bool
) -> None:
    folder = project("small")
    timeout = trial(TrialStatus.TIMEOUT, **{key: example})
    file = Path(".pv_cache/replay/F-cpu.json")
    (kept,) = write_replays(find_project(folder), evidence(timeout)).trials.values()
    assert kept == replace(timeout, **{key: replace(example, file=str(file) if is_written else "")})
    assert (json.loads(file.read_text()) == LONG.arguments) if is_written else not file.exists()
