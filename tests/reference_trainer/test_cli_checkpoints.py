"""`reference-trainer checkpoints`: what it prints, exports and refuses, and its exit codes."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import load_teacher
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.retention import Best
from tests.reference_trainer.commands import command

CONFIG = DecoderConfig(vocab_size=256, layers=1, width=16, heads=1)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return an output directory with the checkpoints of steps 1 and 2, of which the first is the best."""
    for step in (1, 2):
        tensors = {f"student.{name}": each for name, each in new_decoder(CONFIG, step).state_dict().items()}
        state = {"student": asdict(CONFIG)}
        content = Manifest(run_id="student", step=step, best=Best(step=1, score=0.25), conditions={}, state=state)
        save_checkpoint(tmp_path / "out" / "checkpoints", content, tensors)
    return tmp_path / "out"


def damage(out: Path, step: int) -> Path:
    path = out / "checkpoints" / f"student-step{step}" / "rank-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    return path


def test_whole_checkpoints_are_listed_with_exit_code_0(out: Path) -> None:
    ended = command("checkpoints", str(out))
    first, second = ended.said.splitlines()
    assert (ended.code, ended.complaints) == (0, "")
    assert first.startswith("student-step1  20") and first.endswith("bytes  whole, best (score 0.25)")
    assert second.startswith("student-step2  20") and second.endswith("bytes  whole, latest")


def test_damaged_checkpoint_is_named_with_exit_code_1(out: Path) -> None:
    path = damage(out, 2)
    ended = command("checkpoints", str(out / "checkpoints"))
    assert ended.code == 1
    assert f"damaged: {path} has" in ended.said.splitlines()[1]
    assert ended.said.splitlines()[0].endswith("whole, best (score 0.25)")


@pytest.mark.parametrize(("asked", "step"), [("1", 1), ("latest", 2), ("best", 1)])
def test_exported_checkpoint_is_a_teacher(out: Path, tmp_path: Path, asked: str, step: int) -> None:
    ended = command("checkpoints", str(out), "--export", asked, str(tmp_path / "model"))
    assert (ended.code, ended.said, ended.complaints) == (0, f"wrote {tmp_path / 'model'}\n", "")
    exported, expected = load_teacher(tmp_path / "model").state_dict(), new_decoder(CONFIG, step).state_dict()
    assert all(torch.equal(exported[name], expected[name]) for name in expected)


def test_damaged_checkpoint_is_not_exported(out: Path, tmp_path: Path) -> None:
    damage(out, 1)
    ended = command("checkpoints", str(out), "--export", "1", str(tmp_path / "model"))
    assert ended.code == 1 and not (tmp_path / "model").exists()


@pytest.mark.parametrize("step", ["last", "-1"])
def test_step_that_is_no_number_and_no_name_is_refused(out: Path, step: str) -> None:
    ended = command("checkpoints", str(out), "--export", step, "model")
    assert ended.code == 2 and "Invalid value for '--export'" in ended.complaints
