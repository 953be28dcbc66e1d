"""`pv check` attacks a trainer with a suite: each claim is held, falsified, vacuous, undecided or not claimed."""

import shutil
from pathlib import Path

import pytest

import pv
from pv.results.outcome import Outcome
from tests.commands.small import outcomes, result
from tests.support.projects import Project

CLIP = "TL-CLIP-001"


@pytest.mark.parametrize(
    ("trainer", "claim", "outcome", "reason", "code"),
    [
        ("Unfinished", "TL-DATA-002", Outcome.UNDECIDED, "its premise TL-DATA-001 is undecided: SkipTest: fill", 2),
        ("DroppedReserved", "TL-DATA-002", Outcome.NOT_CLAIMED, "its premise TL-DATA-001 is not claimed: it drops", 2),
    ],
)
def test_a_claim_is_what_its_premise_allows(
    project: Project, trainer: str, claim: str, outcome: Outcome, reason: str, code: int
) -> None:
    project("trainers")
    report = pv.check(f"trainers:{trainer}", only=[claim])
    found = result(report, claim)
    assert (found.outcome, reason in found.reason, report.exit_code) == (outcome, True, code)


def test_code_that_runs_in_processes_of_its_own_is_reached(project: Project) -> None:
    folder = project("trainers")
    shutil.copy(Path(__file__).parents[1] / "suites/training_loop/ddp_loop.py", folder)
    report = pv.check("ddp_loop:DDP", only=["TL-RANKS-002"])
    assert outcomes(report) == {"TL-RANKS-002": Outcome.HELD}


def test_a_failed_claim_shows_the_steps_and_the_command_that_repeats_it(project: Project) -> None:
    project("trainers")
    report = pv.check("trainers:Unclipped", only=[CLIP], seed=3)
    text = pv.render(report)
    assert (outcomes(report), report.exit_code) == ({CLIP: Outcome.FALSIFIED}, 1)
    assert "step  examples" in text
    assert f"rerun     pv check trainers:Unclipped --seed 3 --only {CLIP}" in text


def test_claims_that_a_trainer_does_not_make_are_not_required(project: Project) -> None:
    project("trainers")
    report = pv.check("trainers:Reserved", only=[CLIP, "TL-CLIP-002", "TL-STEP-003"])
    assert outcomes(report) == {
        CLIP: Outcome.NOT_CLAIMED,
        "TL-CLIP-002": Outcome.NOT_CLAIMED,
        "TL-STEP-003": Outcome.HELD,
    }
    assert result(report, CLIP).reason == "it never clips (README, section Clipping)"
    assert result(report, "TL-CLIP-002").reason == "no norm: it logs no norm"
    assert report.exit_code == 0
    assert "its claims detect 1 fault planted in the suite's own subject" in pv.render(report, verbose=True)


def test_a_subject_without_an_adapter_is_undecided_once_with_what_to_write(project: Project) -> None:
    project("trainers")
    report = pv.check("trainers:train", only=["TL-DATA-*"])
    assert set(outcomes(report).values()) == {Outcome.UNDECIDED}
    assert report.exit_code == 2
    assert pv.render(report).count("cannot adapt train: expected an adapter") == 1


def test_a_contract_with_a_suite_requires_what_its_gate_names(project: Project) -> None:
    project("trainers")
    report = pv.validate(only=["my-loop.TL-STEP-002", f"my-loop.{CLIP}"])
    assert outcomes(report) == {"my-loop.TL-STEP-002": Outcome.HELD, f"my-loop.{CLIP}": Outcome.FALSIFIED}


def test_an_unknown_suite_in_a_contract_is_refused(project: Project) -> None:
    file = project("trainers") / "contracts/my-loop.yaml"
    file.write_text(file.read_text().replace("suite: training-loop", "suite: training-lop"))
    (finding,) = pv.load([file]).findings
    assert (finding.code, str(finding.location)) == ("PV012", "contracts/my-loop.yaml:4:8")
    assert (finding.message, finding.hint) == ("unknown suite 'training-lop'", "did you mean 'training-loop'?")
