"""A mutant and coverage change nothing else of a module: its lines, what tracebacks show, its docstrings."""

from pathlib import Path

import pytest

from pv.instrument.import_hook import Plan
from tests.instrument.programs import SUBJECT, edit, value


@pytest.mark.parametrize(
    "plan", [Plan(covered=("subject",)), edit("decorated", "number + extra", "0", covered=("subject",))]
)
def test_the_source_below_a_mutant_is_unmoved(plan: Plan, folder: Path) -> None:
    program = "import inspect, subject\nshow([inspect.getsource(subject.fails), subject.fails.__code__.co_firstlineno])"
    start = SUBJECT[: SUBJECT.index("def fails")].count("\n") + 1
    source = SUBJECT[SUBJECT.index("def fails") : SUBJECT.index("def lines")].rstrip("\n") + "\n"
    assert value(plan, folder, program) == [source, start]


@pytest.mark.parametrize("plan", [Plan(), Plan(covered=("subject",)), edit("double", "number * 2", "0")])
def test_a_traceback_shows_the_right_line(plan: Plan, folder: Path) -> None:
    program = (
        "import subject, traceback\n"
        "try:\n    subject.fails(1)\nexcept ValueError as error:\n"
        "    frame = traceback.extract_tb(error.__traceback__)[-1]\n    show([frame.lineno, frame.line])"
    )
    line = SUBJECT[: SUBJECT.index("raise ValueError")].count("\n") + 1
    assert value(plan, folder, program) == [line, "raise ValueError(below)"]
