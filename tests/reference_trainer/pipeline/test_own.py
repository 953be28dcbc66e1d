"""Parts that a command line names: ranks, supervision and export work with a model of the user's own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import Distillation, ModelFileError, SettingError, Settings, distill
from reference_trainer.callbacks.progress import SilentLines
from reference_trainer.pipeline.custom_class import create_run
from tests.reference_trainer import forked
from tests.reference_trainer.commands import command

MINE = """
import json
import torch
from torch import nn
from reference_trainer import Distillation, MetricSum
from reference_trainer.distillation.protocols import Batch

class Data:
    batches = 4
    def batch(self, epoch, position):
        draw = torch.Generator().manual_seed(10 * epoch + position)
        tokens = torch.randint(0, 16, (2, 8), generator=draw)
        return Batch(tokens=tokens, labels=tokens)

class Table(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)))
    def forward(self, tokens):
        return self.rows[tokens]

class Mine(Distillation):
    vocab_size = 16
    def __init__(self, settings, *, teacher_seed=1, **given):
        super().__init__(settings, **given)
        self.teacher_seed = teacher_seed
    def make_batches(self):
        return Data()
    def make_student(self):
        return Table(0)
    def make_teacher(self):
        return Table(self.teacher_seed)
    def make_optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=1.0)
    def learning_rate(self, step):
        return 0.5 / step
    def evaluate(self):
        return {"seed": MetricSum(float(self.teacher_seed), 1)}
    def save(self, directory, manifest):
        torch.save(self.student.state_dict(), directory / "table.pt")
        (directory / "manifest.json").write_text(json.dumps(manifest))
    def load(self, directory):
        return torch.load(directory / "table.pt")

class Measuring(Mine):
    def evaluate(self):
        rows, seed = self.student.rows, self.teacher.rows[0, 0]
        return {"row": MetricSum(float(rows.sum()), rows.numel()), "teacher": MetricSum(float(seed), 1)}

class Unread(Mine):
    load = Distillation.load

class Frozen(Mine):
    def make_student(self):
        return Table(0).requires_grad_(False)
"""
OWN = ["--parts", "mine:Mine", "--arguments", '{"teacher_seed": 7}', "--save-every", "2", "--log-every", "1"]


@pytest.fixture
def folder(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (empty / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(empty))
    sys.modules.pop("mine", None)
    return empty


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return forked.command(arguments, Path.cwd(), os.environ)


def rows(path: Path) -> torch.Tensor:
    state: dict[str, torch.Tensor] = torch.load(path)
    return state["rows"]


@pytest.mark.usefixtures("forked_ranks")
def test_supervised_ranks_resume_and_export_own_parts(folder: Path) -> None:
    """With the rate 0.5 / step, and without one, as the built-in schedule has it, the weights would differ."""
    done = run("until", "--step", "12", "--nproc-per-node", "2", "--", "distill", *OWN, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 12 of 12 is reached" in done.stdout
    lines = [json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines()]
    assert [line["learning_rate"] for line in lines if "loss" in line["metrics"]] == [0.5 / k for k in range(1, 13)]
    assert json.loads(Path("out/manifest.json").read_text())["held_back"] == {"seed": {"sum": 7.0, "count": 1}}
    exported = run("checkpoints", "out", "--export", "latest", "model")
    assert exported.returncode == 0, exported.stderr
    assert torch.equal(rows(Path("model/table.pt")), rows(Path("out/table.pt")))
    evaluated = command("evaluate", "out", "out/checkpoints/student-latest", "--device", "cpu")
    conditions, _, *lines = evaluated.output.splitlines()
    assert conditions == "the data of mine:Mine (held back), by mine:Mine, against the teacher of mine:Mine"
    table = [line.split() for line in lines]
    assert table == [["out", "7"], ["out/checkpoints/student-latest", "7"]]
    begun = run("distill", *OWN, "--out", "begun", "--init-from", "out", "--max-steps", "1", "--save-every", "0")
    assert begun.returncode == 0 and "student: weights of out, step 12" in begun.stdout, begun.stderr
    recorded = json.loads(Path("begun/manifest.json").read_text())["initial_weights"]
    assert recorded["step"] == 12 and recorded["path"] == str(folder / "out")
    moved = rows(Path("begun/table.pt")) - rows(Path("out/table.pt"))
    assert 0 < moved.abs().max() < 0.5, "the run does not begin with the weights of the other one"
    other = run("distill", *OWN, "--out", "out", "--resume", "latest", "--force", "--arguments", "{}")
    assert other.returncode == 2 and "arguments" in other.stderr


def test_own_evaluation_finds_the_numbers_of_its_run_again(folder: Path) -> None:
    settings: dict[str, Any] = {"parts": "mine:Measuring", "arguments": '{"teacher_seed": 7}', "device": "cpu"}
    distill(Settings(out=Path("out"), max_steps=3, save_every=2, **settings), lines=SilentLines())
    models = ["out", "out/checkpoints/student-latest", "missing"]
    ended = command("evaluate", *models, "--device", "cpu", "--json")
    assert ended.code == 1 and ended.complaints.startswith("error: Measuring cannot load missing: FileNotFoundError")
    reported = json.loads(Path("out/manifest.json").read_text())["held_back"]
    report = json.loads(ended.output)
    assert [entry["sums"] for entry in report["models"]] == [reported, reported]
    assert report["teacher"]["path"] is None and report["unit"] == "token"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": "mine"}, "'parts'.*expected MODULE:CLASS"),
        ({"parts": "mine:Mine", "arguments": "[1]"}, "'arguments'.*expected a JSON object"),
        (
            {"parts": "mine:Mine", "student": "there"},
            "conflicting settings: 'parts' is mine:Mine and 'student' is there",
        ),
        ({"parts": "nothing:Mine"}, "parts: cannot import nothing"),
        ({"parts": "mine:Main"}, r"parts: unknown name 'Main' in mine \(did you mean 'Mine'\?\)"),
        ({"parts": "mine:Table"}, "parts: mine:Table is not a subclass of reference_trainer's Distillation"),
        ({"parts": "mine:Mine", "arguments": '{"seed": 1}'}, "unexpected keyword argument 'seed'"),
    ],
)
def test_invalid_parts_are_refused(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        create_run(Settings(**settings), Distillation)


def test_own_model_without_a_load_is_no_source(folder: Path) -> None:
    settings: dict[str, Any] = {"parts": "mine:Unread", "device": "cpu", "save_every": 0}
    distill(Settings(**settings, out=Path("out"), max_steps=1))
    (folder / "out/model.safetensors").touch()
    message = "cannot load out: Unread has a save of its own and no load"
    with pytest.raises(ModelFileError, match=message):
        distill(Settings(**settings, out=Path("second"), init_from=Path("out")))
    assert command("evaluate", "out", "--device", "cpu").complaints.startswith(f"error: {message}")


def test_student_without_a_parameter_to_train_is_refused_before_the_training(folder: Path) -> None:
    with pytest.raises(SettingError, match="the student of Frozen, a Table, has no parameter that requires a gradient"):
        distill(Settings(parts="mine:Frozen", device="cpu", out=Path("out")), lines=SilentLines())
    assert not Path("out").exists()


def test_callbacks_of_own_parts_are_made_once(folder: Path) -> None:
    counting = "class Counting(Callback):\n    def __init__(self):\n        open('made', 'a').write('x')\n"
    (folder / "counting.py").write_text(f"from reference_trainer import Callback\n\n{counting}")
    (folder / "callbacks.toml").write_text('[[callbacks]]\nuse = "counting:Counting"\n')
    distill(Settings(parts="mine:Mine", callbacks=Path("callbacks.toml"), out=Path("out"), max_steps=1, device="cpu"))
    assert Path("made").read_text() == "x"
