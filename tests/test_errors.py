"""Errors that a user can cause have one root; a mutant that cannot be planted has a typed reason."""

import pickle

import pytest

from pv.errors import BrokenMutant, MutantProblem, ProjectError, PvError, UsageError, WorkerLost


@pytest.mark.parametrize("error", [UsageError, ProjectError, BrokenMutant, WorkerLost])
def test_every_error_has_the_root_that_callers_catch(error: type[Exception]) -> None:
    assert issubclass(error, PvError)


@pytest.mark.parametrize("problem", MutantProblem)
def test_broken_mutant_keeps_its_problem_and_message_when_pickled(problem: MutantProblem) -> None:
    again = pickle.loads(pickle.dumps(BrokenMutant(problem, "there is no 'f'")))
    assert (again.problem, str(again)) == (problem, "there is no 'f'")
