"""`pv check` attacks a trainer with a suite."""

import re
import shutil
from pathlib import Path

import pytest

import pv
from pv.commands.explain import explain
from pv.errors import UsageError
from pv.results.outcome import Outcome
from tests.commands.small import edit, outcomes, result
from tests.support.projects import Project, write

CLIP = "TL-CLIP-001"


@pytest.mark.parametrize(
    ("trainer", "outcome", "reason", "exit_code"),
    [
        ("Unfinished", Outcome.UNDECIDED, "fill", 2),
        ("DroppedReserved", Outcome.NOT_CLAIMED, "its premise TL-DATA-001 is not claimed: it drops", 2),
        ("RaisingLater", Outcome.VACUOUS, "its premise TL-DATA-001 does not hold", 1),
    ],
)
def test_claim_is_undecided_not_claimed_or_vacuous_as_its_premise(
    project: Project, trainer: str, outcome: Outcome, reason: str, exit_code: int
) -> None:
    project("trainers")
    report = pv.check(f"trainers:{trainer}", only=["TL-DATA-002"])
    claim = result(report, "TL-DATA-002")
    assert (claim.outcome, reason in claim.reason, report.exit_code) == (outcome, True, exit_code), claim.reason


LOGGING = """
from pathlib import Path
from pv.suites.training_loop.adapters.handwritten import HandWritten, fill_in

LOG = Path({log!r})
LOG.open("a").write("loaded ")

class Adapter(HandWritten):
    def run(self, job):
        LOG.open("a").write("ran ")
        {fault}
"""


@pytest.mark.parametrize("fault", ['raise KeyError("rows")', 'fill_in("rows")'])
def test_loop_that_cannot_run_the_simplest_job_is_run_and_reported_once(
    empty: Path, tmp_path_factory: pytest.TempPathFactory, fault: str
) -> None:
    log = tmp_path_factory.mktemp("log") / "log"
    write(empty, {"logging_adapter.py": LOGGING.format(log=str(log), fault=fault)})
    report = pv.check("logging_adapter:Adapter", jobs=1)
    assert log.read_text().count("ran") == 1 and log.read_text().count("loaded") < 10  # ranks may do without
    (verdict,) = report.contracts
    assert len({claim.reason for claim in verdict.results if claim.outcome is Outcome.UNDECIDED}) == 1
    text = pv.render(report)
    assert text.count("rows") == 2 and text.count("UNDECIDED  ") == 2  # the reason and its line; contract and claims


def test_claim_with_skipped_jobs_is_judged_by_the_remaining_jobs(project: Project) -> None:
    project("trainers")
    report = pv.check("trainers:Picky", only=["TL-STEP-001"])
    remark = r"\d of 10 drawn examples were skipped: a window has at most two micro-batches"
    assert (outcomes(report), report.exit_code) == ({"TL-STEP-001": Outcome.HELD}, 0)
    assert re.search(rf"HELD +TL-STEP-001 on cpu: {remark}\n", pv.render(report))
    assert re.search(rf"runs? \({remark}\), seed", pv.render(report, "markdown"))


def test_runs_of_premises_are_not_runs_of_the_claim(project: Project) -> None:
    project("trainers")
    trial = result(pv.check("trainers:Right", only=["TL-EVAL-001"]), "TL-EVAL-001").trial
    assert trial is not None and trial.valid == 1  # its two premises have more runs


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
    suite = "pv/suites/training_loop/"
    assert f"FALSIFIED  {CLIP} on cpu\n" in text and suite not in text and "  at  " not in text
    detailed = pv.render(report, verbose=True)
    assert f"{suite}training-loop.yaml:" in detailed and f"{suite}claims/checks.py" in detailed


def test_exception_in_a_claim_names_the_line_of_the_user(project: Project) -> None:
    project("trainers")
    text = pv.render(pv.check("trainers:RaisingLater", only=["TL-STEP-003"]))
    assert "IndexError: index out of range" in text
    assert "in run: job.model()(torch.full((1, 2), 99)) if job.epochs > 1 else None\n" in text


def test_claims_that_a_trainer_does_not_make_are_not_required(project: Project) -> None:
    project("trainers")
    report = pv.check("trainers:Reserved", only=[CLIP, "TL-CLIP-002", "TL-STEP-003"], fail_fast=True, jobs=1)
    unclaimed = dict.fromkeys([CLIP, "TL-CLIP-002"], Outcome.NOT_CLAIMED)
    assert outcomes(report) == {**unclaimed, "TL-STEP-003": Outcome.HELD}
    assert result(report, CLIP).reason == "it never clips (README, section Clipping)"
    assert result(report, "TL-CLIP-002").reason == "no norm: it logs no norm"
    assert report.exit_code == 0
    assert "its claims detect 1 fault planted in the suite's own subject" in pv.render(report, verbose=True)


def test_adapter_with_names_of_version_0_2_gets_a_note_with_the_new_names(project: Project) -> None:
    edit(project("trainers") / "trainers.py", 'features = {"norm"', 'lacks = {"norm"')
    report = pv.check("trainers:Reserved", only=["TL-CLIP-002"])
    assert result(report, "TL-CLIP-002").reason == "no norm: it logs no norm"
    (note,) = report.notes
    says = """`lacks` will not be read from version 0.5 on; write `features = {"norm": 'it logs no norm'}`"""
    assert note.endswith(says)


SIMPLEST = "every claim: the loop cannot run the simplest job (an epoch of 4 examples of one length, in batches of 2): "


@pytest.mark.parametrize(
    ("trainer", "headline", "line"),
    [
        ("Raising", f"{SIMPLEST}RuntimeError: Expected", "return job.model()(torch.zeros(1, 2))"),
        ("Returning", f"{SIMPLEST}TypeError: Returning.run(job) returned None: expected a Report", ""),
        ("Unloaded", "the subject cannot be loaded: OSError: missing settings", 'raise OSError("missing settings")'),
        ("train", "cannot adapt train: expected an adapter", ""),
        ("Unknown", f"`not_claimed` names an unknown claim 'TL-CLIPS-001'; did you mean '{CLIP}'?", ""),
    ],
)
def test_raising_subject_leaves_every_claim_undecided(project: Project, trainer: str, headline: str, line: str) -> None:
    source = (project("trainers") / "trainers.py").read_text().splitlines()
    report = pv.check(f"trainers:{trainer}", only=["TL-DATA-001", "TL-GRAD-001", CLIP])
    assert set(outcomes(report).values()) == {Outcome.UNDECIDED} and report.exit_code == 2
    text = pv.render(report)
    assert text.count("UNDECIDED  every claim: ") == text.count(headline) == 1
    places = [f"at trainers.py:{i} in " for i, code in enumerate(source, 1) if line and code.strip() == line]
    assert [place in text for place in places] == [True] * bool(line)


def test_script_that_exits_on_import_gets_a_hint(project: Project) -> None:
    parses = "import argparse\nargs = argparse.ArgumentParser().parse_args(['--lr'])\n"
    write(project("trainers"), {"script.py": f"{parses}\ndef train(model): ...\n"})
    text = pv.render(pv.check("script:train", only=["TL-DATA-001"]))
    assert "the subject cannot be loaded: SystemExit: 2; a subject is imported" in text


def test_topic_selects_its_claims_and_another_name_is_answered_with_the_commands_of_the_suite(project: Project) -> None:
    project("trainers")
    assert set(outcomes(pv.check("trainers:Right", only=["end"]))) == {"TL-END-001"}
    report = pv.check("trainers:Right", only=["GRADS"])
    assert report.exit_code == 2
    assert "no claim matches 'GRADS': did you mean 'GRAD'? `pv explain training-loop` shows all" in pv.render(report)
    unlike = pv.render(pv.check("trainers:Right", only=["QQQQQQQQ"]))
    assert "no claim matches 'QQQQQQQQ': `pv explain training-loop` shows all" in unlike


SIMILAR = {
    "C-LIMITS": "did you mean 'C-LIMIT'?",
    "TL-GRAD-099": "did you mean `pv explain TL-GRAD-00",
    "GRAD": "did you mean `pv explain '*-GRAD-*'`?",
    "training-lop": "did you mean `pv explain training-loop`?",
    "NOTHING-LIKE-IT": "`pv explain SUITE` a suite (causal-lm, distillation-loss,",
}


@pytest.mark.parametrize("name", SIMILAR)
def test_explain_names_a_similar_id_or_the_suites(project: Project, name: str) -> None:
    project("small")
    with pytest.raises(UsageError, match=f"^unknown id '{name}': .*{re.escape(SIMILAR[name])}"):
        explain(name)


def test_validate_of_a_claim_of_a_suite_names_the_command(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match=r"training-loop has this claim: `pv check SUBJECT --only 'TL-GRAD-001'`"):
        pv.validate(["TL-GRAD-001"])
    with pytest.raises(UsageError, match=r"`pv check SUBJECT --suite optimizer --only 'OPT-STEP-\*'`"):
        pv.validate(["OPT-STEP-*"])


def test_contract_with_a_suite_tries_the_claims_of_the_suite(project: Project) -> None:
    project("trainers")
    report = pv.validate(only=["my-loop.TL-STEP-002", f"my-loop.{CLIP}"])
    assert outcomes(report) == {"my-loop.TL-STEP-002": Outcome.HELD, f"my-loop.{CLIP}": Outcome.FALSIFIED}


def test_an_unknown_suite_in_a_contract_is_refused(project: Project) -> None:
    edit(file := project("trainers") / "contracts/my-loop.yaml", "suite: training-loop", "suite: training-lop")
    (finding,) = pv.load([file]).findings
    assert (finding.code, str(finding.location)) == ("PV012", "contracts/my-loop.yaml:4:8")
    assert (finding.message, finding.hint) == ("unknown suite 'training-lop'", "did you mean 'training-loop'?")
