"""Mutants and coverage apply in the processes that a run starts; code that they cannot reach never passes.

The subject's code runs only in child processes: see `tests/projects/children`.
"""

import pytest

import pv
from pv.results.outcome import Outcome, Result
from tests.support.projects import copy

EVERY_KIND = ("console", "spawn", "exit", "exception")
ANSWERS = {"edit": "AssertionError: 10", "swap": "AssertionError: 10"}
ANSWERS |= {"apart-edit": "AssertionError: 6", "apart-swap": "AssertionError: 6"}
NO_PASS = {
    "unreached": (Outcome.VACUOUS, "the mutant 'unused-edit' survived (the mutated code was never reached)"),
    "cleaned": (Outcome.VACUOUS, "the subject was never reached: no function of it ran"),
    "cleaned-apart": (Outcome.ERROR, "the mutant 'apart-edit' could not be judged: pkg.apart was never imported"),
    "killed": (Outcome.VACUOUS, "the subject was never reached: no function of it ran"),
    "killed-apart": (Outcome.ERROR, "the mutant 'apart-edit' could not be judged: pkg.apart was never imported"),
    "broken-swap": (
        Outcome.ERROR,
        "the mutant 'unloadable' could not be judged: cannot load falsifiers.broken_swaps:add: only in a child process",
    ),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy("children", tmp_path_factory.mktemp("children") / "project"))
        report = pv.validate(only=[*EVERY_KIND, *NO_PASS])
    return {result.falsifier.id: result for result in report.contracts[0].results}


@pytest.mark.parametrize("name", EVERY_KIND)
def test_mutant_of_code_that_only_a_child_process_runs_is_killed(results: dict[str, Result], name: str) -> None:
    result = results[name]
    assert result.outcome is Outcome.HELD, result.reason
    assert {"pkg.core:double", "pkg.apart:add"} <= set(result.trial.reached)
    assert all(trial.mutant_reached for trial in result.mutants)
    # By its answer: a child that broke down under the mutant would refute the claim just as well.
    assert {trial.mutant: trial.counterexample.error for trial in result.mutants} == ANSWERS


@pytest.mark.parametrize("name", NO_PASS)
def test_unreached_code_never_passes(results: dict[str, Result], name: str) -> None:
    assert (results[name].outcome, results[name].reason) == NO_PASS[name]
