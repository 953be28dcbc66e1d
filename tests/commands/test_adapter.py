"""`pv new --trainer` writes an adapter that accuses nobody before it is filled in."""

import ast
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import pv
from pv.cli import main
from pv.commands.loop_parts import Loop, called
from pv.results.outcome import Outcome
from tests.commands.small import outcomes

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


def new(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["new", *arguments])
    return done.exit_code, done.output


def test_what_the_source_does_not_tell_leaves_every_claim_undecided(folder: Path) -> None:
    code, said = new("--trainer", "train:Loop")
    assert code == 0 and said.endswith("next: pv check train_adapter:Adapter\n")
    found = outcomes(pv.check("train_adapter:Adapter", only=FEW, jobs=1))
    assert set(found.values()) <= {Outcome.UNDECIDED, Outcome.NOT_CLAIMED} and Outcome.UNDECIDED in found.values()


def test_filled_in_adapter_of_a_function_holds_and_a_fault_is_seen(folder: Path) -> None:
    new("--trainer", "train:train")
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
