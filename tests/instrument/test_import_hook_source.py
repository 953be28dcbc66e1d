"""A mutant and coverage change nothing else of a module: its lines, what tracebacks show, its docstrings."""

from pathlib import Path

import pytest

from pv.instrument.import_hook import Plan
from tests.instrument.programs import SUBJECT, edit, value


def test_the_source_of_a_mutated_function_is_the_mutated_one(folder: Path) -> None:
    program = "import inspect, subject\nshow(inspect.getsource(subject.double))"
    assert value(edit("double", "2", "3"), folder, program) == "def double(number):\n    return number * 3\n"


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


def test_a_traceback_through_a_mutant_shows_the_mutant(folder: Path) -> None:
    program = (
        "import subject, traceback\n"
        "try:\n    subject.double(1)\nexcept ZeroDivisionError as error:\n"
        "    show(traceback.extract_tb(error.__traceback__)[-1].line)"
    )
    assert value(edit("double", "number * 2", "number / 0"), folder, program) == "return number / 0"


@pytest.mark.parametrize("plan", [Plan(covered=("subject",)), edit("double", "2", "3", covered=("subject",))])
def test_docstrings_annotations_and_defaults_stay_as_they_are(plan: Plan, folder: Path) -> None:
    program = (
        "import subject as s\n"
        "show([s.__doc__, s.scaled.__doc__, s.Counter.__doc__, s.decorated.__wrapped__.__defaults__])"
    )
    assert value(plan, folder, program) == ["A subject.", "Multiplies what the function gives.", "Counts.", [10]]
