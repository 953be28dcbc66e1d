"""Mutation results as text and JSON, and their exit code."""

import json

from pv.contract.model import Gate
from pv.mutation import summary
from pv.mutation.judge import MutantStatus
from pv.results.trial import TrialStatus
from tests.mutation.handmade import result
from tests.results.handmade import contract, falsifier, trial

KILLED, SURVIVED = MutantStatus.KILLED, MutantStatus.SURVIVED
GATED = contract(falsifier(), gate=Gate(mutation_score=0.67))


def test_score_is_rounded_down_and_shown_with_its_denominators() -> None:
    assert summary.summary(result(KILLED, KILLED, SURVIVED)) == "mutation score 66.6 % (2 of 3 killed)"
    assert summary.summary(result(KILLED, elsewhere="only shop")) == "nothing to judge: only shop"


def test_exit_code_follows_problems_then_empty_results() -> None:
    assert summary.exit_code([result(SURVIVED)]) == 0
    assert summary.exit_code([result(SURVIVED), result()]) == 2
    assert summary.exit_code([]) == 2
    assert summary.exit_code([result(), result(KILLED, unused=("c.yaml:1:1",))]) == 1


def test_score_below_the_gate_is_a_problem_of_whole_contracts_only() -> None:
    low = result(KILLED, KILLED, SURVIVED, contract=GATED)
    assert summary.problems(low) == [
        "the mutation score is 66.6 %, the contract's gate requires 67 %; survivors are listed above"
    ]
    assert summary.problems(result(SURVIVED, contract=GATED, restricted=True)) == []
    assert summary.problems(result(KILLED, contract=GATED)) == []


def test_falsifier_that_fails_on_the_clean_code_is_a_problem() -> None:
    unfit = result(KILLED, unfit=(trial(TrialStatus.ERROR, detail="no torch"),))
    assert summary.problems(unfit) == ["F does not hold on the code itself: no torch"]


def test_text_shows_survivors_with_their_diff_and_no_killed_mutant() -> None:
    lines = summary.text([result(KILLED, SURVIVED)], 1.25).splitlines()
    assert lines == [
        "c by F: mutation score 50 % (1 of 2 killed)",
        "",
        "contract.yaml:3 tiny:double [constant] survived",
        "  -    return 2",
        "  +    return 3",
        "  tried by F",
        "",
        "1.2 s; exit 0",
    ]


def test_json_has_every_mutant_with_its_status() -> None:
    data = json.loads(summary.data([result(KILLED, SURVIVED)], 1.25))
    assert (data["exit_code"], data["contracts"][0]["score"]) == (0, 0.5)
    assert [mutant["status"] for mutant in data["contracts"][0]["mutants"]] == ["killed", "survived"]
