"""Lists of names in messages end with the number of those that they leave out, and a near name is suggested."""

import pytest

from pv.contract.wording import MAX_NAMED, MAX_NAMES, count, cut, did_you_mean, listed, nearest


def test_six_names_are_listed_and_the_remaining_ones_counted() -> None:
    assert listed(range(MAX_NAMES)) == "0, 1, 2, 3, 4, 5"
    assert listed(range(MAX_NAMES + 1)) == "0, 1, 2, 3, 4, 5 and 1 more"


def test_long_lists_of_names_end_with_the_number_of_the_remaining_ones() -> None:
    names = [f"name-{number:02}" for number in range(MAX_NAMED + 2)]
    assert did_you_mean("other", names).endswith(", name-23 and 2 more")
    assert did_you_mean("nam-07", names) == "did you mean 'name-07'?"
    assert nearest("name", ["name"]) == ""
    assert did_you_mean("other", {}) == "none is declared"


@pytest.mark.parametrize(("text", "short"), [("", ""), ("12345", "12345"), ("123456", "12...")])
def test_a_long_text_is_cut_to_its_limit(text: str, short: str) -> None:
    assert cut(text, 5) == short


def test_a_number_is_followed_by_its_plural() -> None:
    assert [count(1, "claim"), count(2, "claim"), count(2, "process")] == ["1 claim", "2 claims", "2 processes"]
