"""Mutants are planted by syntax tree: exactly that change, on exactly those lines, or a refusal that says why."""

import ast
import pickle
import textwrap
from typing import Any

import pytest

from pv.errors import BrokenMutant, MutantProblem
from pv.source.patch import patch

LOSS = '''
"""A module."""
import math

SCALE = 2.0


def loss(student, teacher, tau):
    """The loss."""
    difference = student - teacher
    return difference * tau**2


class Step:
    size: int = 4

    @property
    def half(self):
        return self.size / 2

    @staticmethod
    def run(values):
        def inner(value):
            return value + 1
        total = 0
        for value in values:
            total += inner(value)
        return total
'''


def lines(before: str, after: str) -> list[str]:
    """The lines that differ, as they are after."""
    pairs = zip(before.split("\n"), after.split("\n"), strict=True)
    return [new for old, new in pairs if old != new]


@pytest.mark.parametrize(
    ("name", "find", "replace", "changed"),
    [
        ("loss", "tau**2", "tau", "    return difference * tau"),
        ("loss", "tau ** 2", "tau + 1", "    return difference * (tau + 1)"),
        ("loss", "difference * tau**2", "difference + tau**2", "    return difference + tau**2"),
        ("loss", "student - teacher", "teacher - student", "    difference = teacher - student"),
        ("loss", "student - teacher", "", "    difference = None"),
        ("loss", "tau**2", "tau if tau else 1", "    return difference * (tau if tau else 1)"),
        ("loss", "tau**2", "lambda: 1", "    return difference * (lambda: 1)"),
        ("loss", "tau**2", "a, b", "    return difference * (a, b)"),
        ("loss", "difference = student - teacher", "difference = 0", "    difference = 0"),
        ("loss", "difference = student - teacher", "pass", "    pass"),
        ("loss", "difference = student - teacher", "", "    pass"),
        ("loss", "return difference * tau**2", "return 0", "    return 0"),
        ("SCALE", "2.0", "3.0", "SCALE = 3.0"),
        ("Step.size", "4", "5", "    size: int = 5"),
        ("Step", "4", "5", "    size: int = 5"),
        ("Step.half", "2", "3", "        return self.size / 3"),
        ("Step.half", "property", "cached_property", "    @cached_property"),
        ("Step.run.inner", "value + 1", "value", "            return value"),
        ("Step.run", "value + 1", "value", "            return value"),
        ("Step.run", "total += inner(value)", "total = inner(value)", "            total = inner(value)"),
        ("Step.run", "total = 0", "total = 1", "        total = 1"),
    ],
)
def test_only_the_place_changes(name: str, find: str, replace: str, changed: str) -> None:
    assert lines(LOSS, patch(LOSS, name, find, replace)) == [changed]


def test_a_remark_in_a_replacement_takes_nothing_with_it() -> None:
    patched = patch(LOSS, "loss", "tau**2", "tau  # why")
    assert ast.dump(ast.parse(patched)) == ast.dump(ast.parse(LOSS.replace("tau**2", "tau")))


@pytest.mark.parametrize(
    ("name", "find", "replace", "says"),
    [
        ("los", "tau", "1", "there is no 'los'"),
        ("loss", "tau**3", "tau", "'tau**3' occurs 0 times in 'loss'; it must occur exactly once"),
        ("loss", "difference", "x", "'difference' occurs 2 times in 'loss'; it must occur exactly once"),
        ("loss", "tau**2", "tau ** 2", "replacing 'tau**2' by 'tau ** 2' changes nothing"),
        ("loss", "tau**2", "  (tau)**2 # why", "replacing 'tau**2' by '  (tau)**2 # why' changes nothing"),
        ("loss", "", "x", "'' is empty"),
        ("loss", "# why", "x", "'# why' is empty"),
        ("loss", "tau**2", "tau +", "'tau +' is no expression"),
        ("loss", "tau**2", "return tau", "'return tau' is no expression"),
        ("loss", "tau**2", "1; import os", "'1; import os' is no expression"),
        ("loss", "tau**2", "1) + (2", "replacing"),
        ("loss", "return difference * tau**2", "return (", "'return (' is no statement"),
        (
            "Step.run.inner",
            "total = 0",
            "x",
            "'total = 0' occurs 0 times in 'Step.run.inner'",
        ),
    ],
)
def test_what_does_not_apply_is_refused_with_its_reason(name: str, find: str, replace: str, says: str) -> None:
    with pytest.raises(BrokenMutant) as refused:
        patch(LOSS, name, find, replace)
    assert str(refused.value).startswith(says)


def test_a_find_that_is_no_python_is_refused() -> None:
    with pytest.raises(BrokenMutant, match=r"^'tau \+' is neither an expression nor whole statements: invalid syntax"):
        patch(LOSS, "loss", "tau +", "x")


def test_a_longer_statement_is_padded_so_that_what_follows_stays_on_its_line() -> None:
    source = "def f(x):\n    if x:\n        a()\n        b()\n    return x\n"
    assert patch(source, "f", "if x:\n    a()\n    b()", "a()") == "def f(x):\n    a()\n\n\n    return x\n"


def test_a_longer_expression_is_padded_so_that_what_follows_stays_on_its_line() -> None:
    source = "def f(x):\n    y = max(\n        x,\n        1,\n    )\n    return y\n"
    patched = patch(source, "f", "max(x, 1)", "x")
    assert patched == "def f(x):\n    y = (x\n\n\n)\n    return y\n"


def test_several_statements_are_replaced_by_several() -> None:
    source = "def f(x):\n    a = 1\n    b = 2\n    return a + b\n"
    patched = patch(source, "f", "a = 1\nb = 2", "a = 2\nif x:\n    a = 3\nb = 2")
    assert patched == "def f(x):\n    a = 2\n    if x:\n        a = 3\n    b = 2\n    return a + b\n"


def test_the_text_of_a_string_is_not_indented_with_its_statement() -> None:
    patched = patch("def f():\n    x = 1\n    return x\n", "f", "x = 1", 'x = """a\nb"""')
    assert patched == 'def f():\n    x = """a\nb"""\n    return x\n'


def test_tabs_stay_tabs() -> None:
    assert patch("def f():\n\tx = 1\n\treturn x\n", "f", "x = 1", "x = 2\ny = 3") == (
        "def f():\n\tx = 2\n\ty = 3\n\treturn x\n"
    )


def test_a_statement_in_the_line_of_its_branch_is_replaced_there() -> None:
    assert patch("def f(x):\n    if x: return 1\n    return 2\n", "f", "return 1", "return 3") == (
        "def f(x):\n    if x: return 3\n    return 2\n"
    )


def test_a_statement_that_would_swallow_the_rest_of_its_line_is_refused() -> None:
    with pytest.raises(BrokenMutant, match="would change more than that, or gives no valid Python"):
        patch("def f(x):\n    a = 1; b = 2\n    return a\n", "f", "a = 1", "if x:\n    a = 1")


def test_a_branch_is_not_replaced_by_what_would_leave_its_chain() -> None:
    source = "def f(x):\n    if x:\n        a()\n    elif y:\n        b()\n"
    with pytest.raises(BrokenMutant, match="would change more than that, or gives no valid Python"):
        patch(source, "f", "if y:\n    b()", "c()")


def test_a_call_on_a_lone_generator_is_replaced_whole() -> None:
    source = "def f(v):\n    return sum(x for x in v)\n"
    assert patch(source, "f", "(x for x in v)", "v") == "def f(v):\n    return sum(v)\n"


def test_a_statement_that_is_an_expression_is_replaced_as_a_statement() -> None:
    assert patch("def f(x):\n    g(x)\n    return x\n", "f", "g(x)", "return 1") == (
        "def f(x):\n    return 1\n    return x\n"
    )


def test_an_expression_in_a_format_string_is_replaced_there_or_refused() -> None:
    """Before Python 3.12 places inside a format string can be wrong; a wrong one must not hit other code."""
    source = "def f(a, b):\n    return f'''{a}\n  {a + b:>3}'''\n"
    try:
        patched = patch(source, "f", "a + b", "a - b")
    except BrokenMutant:
        return
    assert patched == source.replace("a + b", "a - b")


def test_a_patched_module_runs_and_differs() -> None:
    source = textwrap.dedent(LOSS)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    exec(source, before)
    exec(patch(source, "loss", "tau**2", "tau"), after)
    assert [space["loss"](3.0, 1.0, 4.0) for space in (before, after)] == [32.0, 8.0]


def test_a_statement_on_a_continued_line_is_replaced_by_simple_statements_only() -> None:
    source = "def f(x):\n    if x: \\\n        return 1\n    return 2\n"
    assert patch(source, "f", "return 1", "return 3") == source.replace("return 1", "return 3")
    with pytest.raises(BrokenMutant):
        patch(source, "f", "return 1", "if y:\n    return 3")


@pytest.mark.parametrize(
    ("name", "find", "replace", "problem"),
    [
        ("los", "tau", "1", MutantProblem.NO_DEFINITION),
        ("loss", "tau**3", "1", MutantProblem.NO_MATCH),
        ("loss", "tau +", "1", MutantProblem.NO_MATCH),
        ("loss", "tau**2", "tau ** 2", MutantProblem.NO_CHANGE),
        ("loss", "tau**2", "tau +", MutantProblem.INVALID_REPLACEMENT),
    ],
)
def test_a_refusal_has_a_typed_reason_also_after_pickling(
    name: str, find: str, replace: str, problem: MutantProblem
) -> None:
    with pytest.raises(BrokenMutant) as refused:
        patch(LOSS, name, find, replace)
    again = pickle.loads(pickle.dumps(refused.value))
    assert refused.value.problem is again.problem is problem
    assert str(again) == str(refused.value)
