"""The tasks of a validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.commands.attempt import Attempt, Options
from pv.commands.bodies import Bodies
from pv.contract.names import Target
from pv.engines.kind import How
from pv.results.trial import TrialStatus
from pv.source.project import find_project
from tests.commands.small import Project
from tests.results.handmade import FOUND, trial


@pytest.fixture
def folder(project: Project) -> Path:
    made = project("small")
    (made / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    return made


def prepared(folder: Path, subjects: Mapping[str, Target], **options: Any) -> tuple[Bodies, Attempt]:
    (contract,) = pv.load([folder / "contracts"]).contracts
    bodies = Bodies(find_project(folder), subjects, Options(jobs=1, **options))
    return bodies, Attempt(contract=contract, device="cpu", falsifier=contract.falsifiers[0])


def test_search_has_the_options_of_the_validation(folder: Path) -> None:
    bodies, attempt = prepared(folder, {}, examples=7, seed=3, replay="{}")
    assert bodies.how(attempt) == How(device="cpu", examples=7, seed=3, replay="{}")


def test_counterexample_of_a_first_search_is_replayed(folder: Path) -> None:
    bodies, attempt = prepared(folder, {})
    first = trial(TrialStatus.REFUTED, counterexample=FOUND)
    again = Attempt(contract=attempt.contract, device="cpu", falsifier=attempt.falsifier, first=first)
    assert bodies.how(again).replay == '{"n": 1}'


def test_other_subject_is_attacked_but_mutants_are_faults_of_the_own_one(folder: Path) -> None:
    bodies, attempt = prepared(folder, {"counting": Target("theirs")})
    claim = attempt.contract.falsifiers[0]
    assert bodies.subject(attempt.contract, claim) == Target("theirs")
    assert bodies.attack(attempt, claim, bodies.how(attempt)).subject == "theirs"
    mutated = Attempt(contract=attempt.contract, device="cpu", falsifier=claim, mutant=attempt.contract.mutants[0])
    assert bodies.attack(mutated, claim, bodies.how(mutated)).subject == "counting"


def test_run_is_executed_with_small_arguments_where_mutants_are_judged(folder: Path) -> None:
    bodies, attempt = prepared(folder, {})
    contract, (run,) = attempt.contract, attempt.contract.runs
    bound = [
        bodies.execute(
            Attempt(contract=contract, device="cpu", run=run, small=small), contract.falsifiers[3], run, folder
        )
        for small in (False, True)
    ]
    assert [body.payload["arguments"] for body in bound] == [{"epochs": 5, "steps": 7}, {"epochs": 2, "steps": 2}]
