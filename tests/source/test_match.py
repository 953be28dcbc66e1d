"""A pattern is found by its syntax tree, at the right offsets, in every definition of its name."""

import pytest

from pv.errors import BrokenMutant
from pv.source.patch import patch


def test_a_definition_is_matched_with_its_decorators() -> None:
    source = "def f():\n    @wrap(1)\n    @other\n    def g():\n        pass\n    return g\n"
    find = "@wrap(1)\n@other\ndef g():\n    pass"
    assert patch(source, "f", find, "def g():\n    pass") == (
        "def f():\n    def g():\n        pass\n\n\n    return g\n"
    )


def test_a_name_that_is_defined_twice_is_searched_in_both_places() -> None:
    source = "if a:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n"
    assert patch(source, "f", "2", "3") == source.replace("2", "3")
    twice = source.replace("2", "1")
    with pytest.raises(BrokenMutant, match="'1' occurs 2 times in 'f'"):
        patch(twice, "f", "1", "3")


@pytest.mark.parametrize(
    "frame",
    [
        "try:\n    {}\nexcept E:\n    pass\n",
        "try:\n    pass\nfinally:\n    {}\n",
        "match a:\n    case 1:\n        {}\n",
    ],
)
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
