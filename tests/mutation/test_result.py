"""The result of a mutation run."""

from pv.mutation.judge import MutantStatus
from tests.mutation.handmade import result

KILLED, SURVIVED = MutantStatus.KILLED, MutantStatus.SURVIVED


def test_result_is_whole_only_with_every_mutant_of_an_unrestricted_run() -> None:
    assert result(KILLED, SURVIVED).whole
    assert not result(KILLED, SURVIVED, total=3).whole
    assert not result(KILLED, SURVIVED, restricted=True).whole


def test_mutants_are_counted_by_status() -> None:
    found = result(KILLED, SURVIVED, KILLED)
    assert (found.count(KILLED), found.count(SURVIVED), found.count(KILLED, SURVIVED)) == (2, 1, 3)
    assert found.count(MutantStatus.TIMEOUT) == 0
