"""Lists of names in messages end with the number of those that they leave out, and a near name is suggested."""

import pytest

from pv.contract.spelling import MAX_NAMED, did_you_mean
from pv.contract.wording import MAX_NAMES, count, cut, listed


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [([], 2, ""), (["a", "b"], 2, "a, b"), (["a", "b", "c"], 2, "a, b and 1 more"), (range(100), 1, "0 and 99 more")],
)
def test_names_beyond_the_limit_are_counted(names: list[object], most: int, text: str) -> None:
    assert listed(names, most) == text


def test_six_names_are_listed_by_default() -> None:
    assert listed(range(MAX_NAMES)) == "0, 1, 2, 3, 4, 5"
    assert listed(range(MAX_NAMES + 1)) == "0, 1, 2, 3, 4, 5 and 1 more"


@pytest.mark.parametrize(("number", "text"), [(0, "0 errors"), (1, "1 error"), (2, "2 errors")])
def test_a_noun_follows_its_number(number: int, text: str) -> None:
    assert count(number, "error") == text


def test_long_lists_of_known_names_end_with_the_number_of_the_others() -> None:
    names = [f"name-{number:02}" for number in range(MAX_NAMED + 2)]
    assert did_you_mean("other", names).endswith(", name-23 and 2 more")
    assert did_you_mean("nam-07", names) == "did you mean 'name-07'?"
    assert did_you_mean("other", {}) == "none is declared"


@pytest.mark.parametrize(("text", "short"), [("", ""), ("12345", "12345"), ("123456", "12...")])
def test_a_long_text_is_cut_to_its_limit(text: str, short: str) -> None:
    assert cut(text, 5) == short
