"""What the hook does for automatic mutants: notes which statements run, and fences off what none may touch."""

import ast
from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.fence import Fence
from pv.hook import Plan
from pv.model import Edit, Target
from pv.probes import add_probes, seen
from pv.syntax import patch

SOURCE = '''def f(a):
    """A text."""
    if a > 1:
        b = [c
             for c in range(a)]
    elif a == 1:
        return g(a)
    else:
        try:
            b = 1 // a
        except ZeroDivisionError:
            b = 0
        finally:
            a = 2
    def g(d):
        return d
    return b
'''


def run(*arguments: Any) -> tuple[Any, set[str]]:
    tree = ast.parse(SOURCE)
    add_probes(tree, "m", statements=True)
    names: dict[str, Any] = {}
    before = set(seen)
    try:
        seen.clear()
        exec(compile(tree, "m", "exec"), names)
        return names["f"](*arguments), set(seen)
    finally:
        seen.clear()
        seen.update(before)


def test_every_statement_that_runs_is_noted_and_no_other() -> None:
    given, noted = run(2)
    assert given == [0, 1]
    assert noted == {"m:f", "m:f@3:4", "m:f@4:8", "m:f@15:4", "m:f@17:4"}
    given, noted = run(0)
    assert given == 0
    assert {"m:f@10:12", "m:f@12:12", "m:f@14:12"} <= noted and "m:f@4:8" not in noted


def test_functions_alone_are_noted_without_being_asked_for_more() -> None:
    tree = ast.parse(SOURCE)
    add_probes(tree, "m")
    assert "@" not in ast.unparse(tree)


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.remove", ("/elsewhere/a", -1)),
        ("os.rmdir", ("/project/a", -1)),
        ("shutil.rmtree", ("/", None)),
        ("os.rename", ("/own/a", "/project/a", -1, -1)),
        ("os.rename", (b"/project/a", b"/own/a", -1, -1)),
        ("open", ("/project/a.py", "w", 0)),
        ("open", ("/project/sub/../a.py", "rb+", 0)),
    ],
)
def test_the_fence_holds(event: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(BrokenMutant, match="it may not "):
        Fence(["/project"], "/own")(event, arguments)


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.remove", ("/own/t1/a", -1)),
        ("os.remove", ("a", 7)),  # below an open folder
        ("shutil.rmtree", ("/own/t1", None)),
        ("os.rename", ("/own/a", "/own/b", -1, -1)),
        ("open", ("/project/a.py", "r", 0)),
        ("open", ("/elsewhere/a.txt", "w", 0)),
        ("open", (7, "w", 0)),
        ("import", ("os", None, None, None, None)),
    ],
)
def test_the_fence_lets_pass_what_is_ones_own(event: str, arguments: tuple[Any, ...]) -> None:
    Fence(["/project"], "/own")(event, arguments)


def test_an_occurrence_names_one_of_equal_places() -> None:
    source = "def f(a):\n    return (a + 1) * (a + 1)\n"
    assert patch(source, "f", "a + 1", "a", 0) == "def f(a):\n    return (a) * (a + 1)\n"
    assert patch(source, "f", "a + 1", "a", 1) == "def f(a):\n    return (a + 1) * (a)\n"
    for wrong in (None, 2):
        with pytest.raises(BrokenMutant, match="occurs 2 times"):
            patch(source, "f", "a + 1", "a", wrong)


def test_a_plan_travels_with_its_occurrence() -> None:
    plan = Plan(module="m", name="f", find="a", replace="b", occurrence=3, statements=True, fenced=True)
    assert Plan.from_json(plan.to_json()) == plan
    assert Edit(function=Target("m", "f"), find="a", replace="b").occurrence is None
