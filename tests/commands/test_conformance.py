"""`pv check` attacks a trainer with a suite; an adapter of `pv new --trainer` is undecided until it is filled in."""

import ast
import importlib
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import pv
from pv.cli import main
from pv.commands.explain import explain
from pv.commands.loop_parts import Loop, called
from pv.errors import UsageError
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


SIMPLEST = "every claim: the loop cannot run the simplest job (an epoch of 4 examples of one length, in batches of 2): "


@pytest.mark.parametrize(
    ("trainer", "headline", "line"),
    [
        ("Raising", f"{SIMPLEST}RuntimeError: Expected", "return job.model()(torch.zeros(1, 2))"),
        ("Returning", f"{SIMPLEST}TypeError: Returning.run(job) returned None: expected a Report", ""),
        ("Unloaded", "the subject cannot be loaded: OSError: missing settings", 'raise OSError("missing settings")'),
    ],
)
def test_subject_that_raises_in_the_simplest_job_leaves_every_claim_undecided(
    project: Project, trainer: str, headline: str, line: str
) -> None:
    source = (project("trainers") / "trainers.py").read_text().splitlines()
    report = pv.check(f"trainers:{trainer}", only=["TL-DATA-001", "TL-GRAD-001", CLIP])
    assert set(outcomes(report).values()) == {Outcome.UNDECIDED} and report.exit_code == 2
    text = pv.render(report)
    assert text.count("UNDECIDED  every claim: ") == text.count(headline) == 1
    places = [f"at trainers.py:{i} in " for i, each in enumerate(source, 1) if line and each.strip() == line]
    assert [each in text for each in places] == [True] * bool(line)


def test_claim_that_is_not_known_is_not_left_out_silently(project: Project) -> None:
    project("trainers")
    report = pv.check("trainers:Unknown", only=[CLIP, "TL-STEP-003"])
    assert set(outcomes(report).values()) == {Outcome.UNDECIDED} and report.exit_code == 2
    assert f"`not_claimed` names an unknown claim 'TL-CLIPS-001'; did you mean '{CLIP}'?" in pv.render(report)


def test_topic_selects_its_claims_and_another_name_is_answered_with_the_commands_of_the_suite(project: Project) -> None:
    project("trainers")
    assert set(outcomes(pv.check("trainers:Right", only=["end"]))) == {"TL-END-001"}
    report = pv.check("trainers:Right", only=["GRADS"])
    assert report.exit_code == 2
    assert "no claim matches 'GRADS': did you mean 'GRAD'? `pv explain training-loop` shows all" in pv.render(report)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TL-GRAD-099", "did you mean `pv explain TL-GRAD-00"),
        ("GRAD", "did you mean `pv explain '*-GRAD-*'`?"),
        ("training-lop", "did you mean `pv explain training-loop`?"),
        ("NOTHING-LIKE-IT", "`pv explain SUITE` a suite (causal-lm, distillation-loss,"),
    ],
)
def test_explain_names_the_suites(project: Project, name: str, hint: str) -> None:
    project("small")
    with pytest.raises(UsageError, match=re.escape(hint)):
        explain(name)


def test_validate_of_a_claim_of_a_suite_names_the_command(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match=r"of the suite training-loop: `pv check SUBJECT --only 'TL-GRAD-001'`"):
        pv.validate(["TL-GRAD-001"])
    with pytest.raises(UsageError, match=r"`pv check SUBJECT --suite optimizer --only 'OPT-STEP-\*'`"):
        pv.validate(["OPT-STEP-*"])


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


EXAMPLE = Path(__file__).parents[2] / "docs/examples/train.py"
FEW = ["TL-DATA-001", "TL-GRAD-001", "TL-EVAL-001", "TL-RESUME-001"]
ROWS = """[
            (list(each.tokens[:-1]), [-1 if label == -100 else label for label in each.labels[1:]])
            for each in {examples}
        ]"""
MODEL = """
from torch.nn import Module
from torch.nn.functional import cross_entropy


class Model(Module):
    def __init__(self, probe):
        super().__init__()
        self.probe = probe

    def forward(self, x, y):
        logits = self.probe(x)
        return logits, cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(EXAMPLE, tmp_path / "train.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def new_adapter(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["new", *arguments])
    return done.exit_code, done.output


def test_what_the_source_does_not_tell_leaves_every_claim_undecided(folder: Path) -> None:
    code, said = new_adapter("--trainer", "train:Loop")
    assert code == 0 and said.endswith("next: pv check train_adapter:Adapter\n")
    found = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert set(found.values()) <= {Outcome.UNDECIDED, Outcome.NOT_CLAIMED} and Outcome.UNDECIDED in found.values()


def test_filled_in_adapter_of_a_function_holds_and_a_fault_is_seen(folder: Path) -> None:
    new_adapter("--trainer", "train:train")
    path = folder / "train_adapter.py"
    text = path.read_text().replace("model=model,", "model=Model(model),").replace("\n\nclass", f"{MODEL}\n\nclass", 1)
    text = text.replace('fill_in("data")', ROWS.format(examples="job.train")).replace('fill_in("held")', "[]")
    path.write_text(text)
    found = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert [found[each] for each in FEW[:2]] == [Outcome.HELD, Outcome.HELD]
    assert [found[each] for each in FEW[2:]] == [Outcome.NOT_CLAIMED, Outcome.NOT_CLAIMED]
    loop = folder / "train.py"
    loop.write_text(loop.read_text().replace("loss / max(scored, 1)", "loss / max(int((y != -1).sum()), 1)"))
    assert outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))["TL-GRAD-001"] is Outcome.FALSIFIED


def test_command_that_a_failed_claim_prints_replays_its_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (EXAMPLE, EXAMPLE.with_name("train_adapter.py")):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    loop = tmp_path / "train.py"
    loop.write_text(
        loop.read_text().replace("loss / max(scored, 1)", "loss / max(int((y != -1).sum()), 1) / len(batches)")
    )
    text = pv.render(pv.check("train_adapter:Adapter", only=["TL-GRAD-002"], jobs=1))
    (printed,) = {line.split("pv ", 1)[1] for line in text.splitlines() if line.startswith("  replay ")}
    done = CliRunner().invoke(main, shlex.split(printed))
    assert done.exit_code == 1 and "FALSIFIED  TL-GRAD-002" in done.output
    (again,) = (line for line in done.output.splitlines() if line.startswith("  rerun "))
    assert "--replay" in again


def loop(text: str) -> Loop:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return Loop(node, {})


@pytest.mark.parametrize(
    ("parameter", "given"),
    [("lr", "rate"), ("grad_clip", "clip"), ("num_epochs", "epochs"), ("max_iters", "max_steps"), ("bs", "batch")],
)
def test_parameter_takes_the_setting_that_it_is_named_for(parameter: str, given: str) -> None:
    call = called(loop(f"def fit(model, {parameter}, data): ..."), "fit", {"job": "job", "model": "model"})
    assert call.text == f'fit(model=model, {parameter}=job.{given}, data=fill_in("data"))'


SETTINGS = """
from dataclasses import dataclass

@dataclass
class RunConfig:
    lr: float = 0.1
    note: object = None
"""
TAKING = "class RunConfig:\n    def __init__(self, lr, depth): ...\n"
CREATED = "RunConfig(lr=job.rate)"


@pytest.mark.parametrize(
    ("parameter", "settings", "given"),
    [
        ("cfg=RunConfig()", SETTINGS, CREATED),
        ("run=RunConfig()", SETTINGS, CREATED),
        ("config", SETTINGS, CREATED),
        ("train_args", SETTINGS, CREATED),
        ("run: 'RunConfig'", SETTINGS, CREATED),
        ("run: RunConfig | None = None", SETTINGS, CREATED),
        ("config", TAKING, "RunConfig(lr=job.rate, depth=fill_in("),
        ("config", "class RunConfig:\n    lr = 0.1\n", 'fill_in("RunConfig with the settings of the job, for config")'),
        ("config", f"{SETTINGS}\nclass DataConfig: ...\n", 'fill_in("config")'),
        ("note=RunConfig", SETTINGS, ""),
    ],
)
@pytest.mark.parametrize("imported", [False, True])
def test_settings_of_a_loop_are_found_without_an_annotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameter: str, settings: str, given: str, imported: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.py").write_text(settings)
    names = "from settings import *" if "DataConfig" not in settings else "from settings import DataConfig, RunConfig"
    names = names.replace("*", "RunConfig")
    (tmp_path / "loops.py").write_text(f"{names if imported else settings}\n\ndef fit(model, {parameter}): ...\n")
    assert new_adapter("--trainer", "loops:fit")[0] == 0
    text = (tmp_path / "loops_adapter.py").read_text()
    name = parameter.split("=")[0].split(":")[0]
    assert f"fit(model=model, {name}={given}" in text if given else "RunConfig" not in text
    assert ("from loops import RunConfig, fit" in text) is given.startswith("RunConfig(")


PARTS = """
class Loop:
    def __init__(self, model, {taken}):
        self.optimizer, self.{scheduler} = None, None

    def train_step(self, window):
        self.loss {sign} 1.0
"""


@pytest.mark.parametrize(
    ("taken", "scheduler", "sign", "logged", "own_loss", "steps_alone"),
    [
        ("epochs", "other", "=", ("loss", "rate"), True, False),
        ("max_steps", "scheduler", "=", ("loss",), True, True),
        ("epochs, max_steps", "scheduler", "+=", (), False, False),
    ],
)
def test_adapter_declares_what_the_source_of_a_loop_tells(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    taken: str,
    scheduler: str,
    sign: str,
    logged: tuple[str, ...],
    own_loss: bool,
    steps_alone: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loops.py").write_text(PARTS.format(taken=taken, scheduler=scheduler, sign=sign))
    new_adapter("--trainer", "loops:Loop")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("loops", "loops_adapter"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    adapter = importlib.import_module("loops_adapter").Adapter
    assert adapter.logged == logged
    assert set(adapter.not_claimed) == ({"TL-LOG-003", "TL-LOG-004", "TL-LOG-005"} if own_loss else set())
    assert adapter.without == (("epochs",) if steps_alone else ())


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ("decay: float", "job.decay or 0.0"),
        ("weight_decay: float", "job.decay or 0.0"),
        ("decay_lr: bool", 'job.schedule == "linear"'),
    ],
)
def test_decay_of_weights_is_not_that_of_the_rate(parameter: str, given: str) -> None:
    call = called(loop(f"def fit(model, {parameter}): ..."), "fit", {"job": "job", "model": "model"})
    assert call.text == f"fit(model=model, {parameter.split(':')[0]}={given})"
