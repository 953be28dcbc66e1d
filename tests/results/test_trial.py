"""The value of a mutation score: killed among judged mutants, None where none was judged."""

import pytest

from pv.results.trial import MutationScore


def test_value_is_the_share_of_judged_mutants() -> None:
    assert MutationScore(total=12, judged=10, killed=9, equivalent=2).value == 0.9


def test_score_without_judged_mutants_has_no_value() -> None:
    assert MutationScore(total=2, judged=0, killed=0, equivalent=2).value is None


def test_score_of_fewer_mutants_than_there_are_is_a_sample() -> None:
    assert MutationScore(total=12, judged=5, killed=5, sampled=5).sample
    assert not MutationScore(total=12, judged=12, killed=5, sampled=12).sample


@pytest.mark.parametrize(
    ("judged", "killed", "text"), [(0, 0, "none"), (4, 4, "100 %"), (10000, 9999, "99.9 %"), (2, 1, "50 %")]
)
def test_percent_is_100_only_for_a_full_score(judged: int, killed: int, text: str) -> None:
    assert MutationScore(total=judged, judged=judged, killed=killed).percent == text
