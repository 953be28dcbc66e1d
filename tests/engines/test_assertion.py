"""The values of a failed assert without a message."""

import pytest
import torch

from pv.engines.assertion import cause_of, explain
from tests.engines import asserting


def caught(function, *arguments) -> AssertionError:
    with pytest.raises(AssertionError) as excinfo:
        function(*arguments)
    return excinfo.value


def explanation(function) -> list[str]:
    return explain(caught(function)).splitlines()


@pytest.mark.parametrize("name", ["consumes", "with_a_message", "cannot_be_repeated"])
def test_nothing_is_shown_if_the_values_would_not_be_those_that_failed(name: str) -> None:
    assert explanation(getattr(asserting, name)) == []


def test_all_sides_of_a_chained_comparison_are_shown() -> None:
    says = ["assert low <= value <= int('4', base=base)", "  low = 0", "  value = 5", "  int('4', base=base) = 4"]
    assert explanation(asserting.chained) == [*says, "  base = 10"]


def test_value_that_changes_when_it_is_evaluated_again_is_not_shown() -> None:
    assert explanation(asserting.changes) == ["assert average.update(n) == n + 0.0", "  n + 0.0 = 1.0", "  n = 1.0"]
    lines = [line for line in explanation(asserting.draws_twice) if "next" in line]
    assert lines == ["assert next(numbers) == next(numbers)"]


def test_arrays_that_an_assert_compares_say_how_they_differ() -> None:
    assert explanation(asserting.of_arrays)[-1] == "  all elements are multiplied by 2"
    assert cause_of(caught(asserting.of_named_arrays)).startswith("1 of 2 differ: b")
    error = caught(torch.testing.assert_close, torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 2.5, 3.0]))
    assert cause_of(error).splitlines()[0] == "at [2] the value is 5, expected 3"
    assert cause_of(caught(asserting.with_a_message)) == ""
