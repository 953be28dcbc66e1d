"""Mutation results as text and JSON, and their exit code."""

from pv.mutation import summary
from pv.mutation.judge import MutantStatus
from tests.mutation.handmade import result

KILLED, SURVIVED = MutantStatus.KILLED, MutantStatus.SURVIVED


def test_exit_code_follows_problems_then_empty_results() -> None:
    assert summary.exit_code([result(SURVIVED)]) == 0
    assert summary.exit_code([result(SURVIVED), result()]) == 2
    assert summary.exit_code([]) == 2
    assert summary.exit_code([result(), result(KILLED, unused=("c.yaml:1:1",))]) == 1
