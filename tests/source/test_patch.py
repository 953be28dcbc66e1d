"""Mutants are planted by syntax tree: exactly that change, on exactly those lines, or a refusal that says why."""

import pickle
from pathlib import Path

import pytest
import yaml

from pv.errors import BrokenMutant, MutantProblem
from pv.source.patch import patch

TABLE = yaml.safe_load((Path(__file__).parent / "patches.yaml").read_text())
LOSS = TABLE["module"]


def lines(before: str, after: str) -> list[str]:
    """The lines that differ, as they are after."""
    pairs = zip(before.split("\n"), after.split("\n"), strict=True)
    return [new for old, new in pairs if old != new]


@pytest.mark.parametrize(("name", "find", "replace", "changed"), TABLE["applied"])
def test_only_the_place_changes(name: str, find: str, replace: str, changed: str) -> None:
    assert lines(LOSS, patch(LOSS, name, find, replace)) == [changed]


@pytest.mark.parametrize(("name", "find", "replace", "problem", "says"), TABLE["refused"])
def test_refusal_has_its_reason_also_pickled(name: str, find: str, replace: str, problem: str, says: str) -> None:
    with pytest.raises(BrokenMutant) as refused:
        patch(LOSS, name, find, replace)
    assert str(refused.value).startswith(says)
    again = pickle.loads(pickle.dumps(refused.value))
    assert refused.value.problem is again.problem is MutantProblem[problem]
    assert str(again) == str(refused.value)


def test_a_longer_statement_is_padded_and_the_text_of_a_string_is_not_indented_with_its_statement() -> None:
    source = "def f(x):\n    if x:\n        a()\n        b()\n    return x\n"
    assert patch(source, "f", "if x:\n    a()\n    b()", "a()") == "def f(x):\n    a()\n\n\n    return x\n"
    patched = patch("def f():\n    x = 1\n    return x\n", "f", "x = 1", 'x = """a\nb"""')
    assert patched == 'def f():\n    x = """a\nb"""\n    return x\n'


def test_a_statement_that_would_swallow_the_rest_of_its_line_is_refused() -> None:
    with pytest.raises(BrokenMutant, match="would change other code too, or is not valid Python"):
        patch("def f(x):\n    a = 1; b = 2\n    return a\n", "f", "a = 1", "if x:\n    a = 1")


@pytest.mark.parametrize("frame", ["try:\n {}\nexcept E: x\n", "try: x\nfinally:\n {}\n", "match a:\n case b:\n  {}\n"])
def test_a_definition_is_found_below_any_statement(frame: str) -> None:
    source = frame.format("def f(): return 1")
    assert patch(source, "f", "1", "2") == frame.format("def f(): return 2")


@pytest.mark.parametrize("before", ["x = 'é€\U0001f600'; ", "'''é\n€'''; ", "x = 'a\\u2028b'; ", ""])
@pytest.mark.parametrize("head", ["", "# é\n", "\f\n", "x = '\x0c\x1c\x85\u2028'\n", "'''\r\n'''\n"])
def test_places_behind_any_character_are_right(head: str, before: str) -> None:
    source = f"{head}def f(): {before}y = 'ü' + g(1); return y\n"
    assert patch(source, "f", "1", "2") == source.replace("g(1)", "g(2)")


def test_an_occurrence_names_one_of_equal_places() -> None:
    source = "def f(a):\n    return (a + 1) * (a + 1)\n"
    assert patch(source, "f", "a + 1", "a", 0) == "def f(a):\n    return (a) * (a + 1)\n"
    assert patch(source, "f", "a + 1", "a", 1) == "def f(a):\n    return (a + 1) * (a)\n"
    for wrong in (None, 2):
        with pytest.raises(BrokenMutant, match="occurs 2 times"):
            patch(source, "f", "a + 1", "a", wrong)
