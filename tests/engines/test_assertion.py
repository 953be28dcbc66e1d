"""The values of a failed assert without a message."""

import pytest

from pv.engines.assertion import explained
from tests.engines import asserting


def explanation(function) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        function()
    return explained(caught.value).splitlines()


def test_sides_calls_and_operands_are_shown_with_their_values() -> None:
    assert explanation(asserting.compared) == [
        "assert subject.double(n) + 1 == want",
        "  subject.double(n) + 1 = 7",
        "  want = 4",
        "  subject.double(n) = 6",
        "  n = 2",
    ]


def test_conditions_on_several_lines_and_their_parts_are_shown() -> None:
    lines = explanation(asserting.several)
    assert lines[0] == "assert 0 < len(subject.rows) and (not subject.rows[1][0] <= allowed)"
    assert {"  subject.rows[1][0] = 3", "  allowed = 3", "  len(subject.rows) = 2"} <= set(lines)


def test_tensors_are_shown_as_in_a_counterexample() -> None:
    assert "  2 * x = tensor([2.0, 4.0], float32)" in explanation(asserting.tensors)


@pytest.mark.parametrize("name", ["consumes", "assigns", "with_a_message", "elsewhere", "cannot_be_repeated"])
def test_nothing_is_shown_if_the_values_would_not_be_those_that_failed(name: str) -> None:
    assert explanation(getattr(asserting, name)) == []


def test_value_that_changes_when_it_is_evaluated_again_is_not_shown() -> None:
    assert explanation(asserting.changes) == ["assert average.update(n) == n + 0.0", "  n + 0.0 = 1.0", "  n = 1.0"]
    assert [line for line in explanation(asserting.draws_twice) if "next" in line] == [
        "assert next(numbers) == next(numbers)"
    ]


def test_other_errors_are_not_explained() -> None:
    assert explained(ValueError("no assert")) == ""


def test_long_values_are_cut() -> None:
    assert max(map(len, explanation(asserting.long))) < 400
