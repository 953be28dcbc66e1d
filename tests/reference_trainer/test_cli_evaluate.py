"""`reference-trainer evaluate` and `checkpoints`: what they print, export and refuse, and their exit codes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import load_teacher
from reference_trainer.storage.checkpoints import Manifest, save_checkpoint
from reference_trainer.storage.export import save_decoder
from reference_trainer.storage.retention import Best
from tests.reference_trainer.commands import command


def saved_model(directory: Path, name: str, seed: int) -> str:
    """Return the path of a saved model of bytes."""
    path = directory / name
    path.mkdir()
    save_decoder(new_decoder(DecoderConfig(vocab_size=256, layers=1, width=16, heads=1), seed), path, {})
    return str(path)


def test_json_has_sums_of_the_chosen_text(tmp_path: Path) -> None:
    """`--json` prints one document; `--data`, `--whole` and `--length` choose what is counted."""
    text = tmp_path / "text"
    text.write_bytes(bytes(range(101)))
    arguments = ["--data", str(text), "--whole", "--length", "11", "--batch-size", "3", "--device", "cpu", "--json"]
    ended = command("evaluate", saved_model(tmp_path, "a", 1), *arguments)
    report = json.loads(ended.output)
    assert ended.code == 0
    assert report["text"]["name"] == str(text) and report["text"]["part"] == "whole" and report["length"] == 11
    assert report["models"][0]["sums"]["hard_loss"]["count"] == 100


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [([], 1, "missing"), (["--length", "1"], 2, "'length'"), (["--data", "no-text"], 1, "no-text")],
)
def test_refusal_names_what_is_wrong(arguments: list[str], code: int, words: str) -> None:
    """Exit code 2 for a wrong option, 1 for a file that cannot be used, with one line."""
    ended = command("evaluate", "missing", *arguments)
    assert ended.code == code and words in ended.complaints and not ended.output


def test_directory_of_an_own_model_is_refused_in_words(tmp_path: Path) -> None:
    path = Path(saved_model(tmp_path, "a", 1))
    (path / "manifest.json").write_text('{"settings": {"length": 128}}')
    ended = command("evaluate", str(path), "--device", "cpu")
    hint = "expected the directory of a model written by reference-trainer"
    assert ended.complaints == f"error: cannot verify {path}/manifest.json: missing key 'sha256'; {hint}\n"


def test_first_run_decides_how_all_are_evaluated(tmp_path: Path) -> None:
    settings = {"length": 17, "documents": "pack"}
    models = [saved_model(tmp_path, "a", 1), saved_model(tmp_path, "b", 2)]
    manifest = Path(models[1], "manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "settings": settings}))
    ended = command("evaluate", *models, "--device", "cpu")
    assert ended.code == 0, ended.complaints
    assert ended.output.splitlines()[0].endswith(" bytes in packed documents of at most 17")


CONFIG = DecoderConfig(vocab_size=256, layers=1, width=16, heads=1)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return an output directory with the checkpoints of steps 1 and 2, where step 1 is the best."""
    for step in (1, 2):
        tensors = {f"student.{name}": tensor for name, tensor in new_decoder(CONFIG, step).state_dict().items()}
        state = {"student": asdict(CONFIG)}
        content = Manifest(run_id="student", step=step, best=Best(step=1, score=0.25), conditions={}, state=state)
        save_checkpoint(tmp_path / "out" / "checkpoints", content, tensors)
    return tmp_path / "out"


def test_undamaged_checkpoints_are_listed_with_exit_code_0_and_damaged_ones_with_1(out: Path) -> None:
    ended = command("checkpoints", str(out))
    first, second = ended.output.splitlines()
    assert (ended.code, ended.complaints) == (0, "")
    assert first.startswith("student-step1  20") and first.endswith("bytes  undamaged, best (score 0.25)")
    assert second.startswith("student-step2  20") and second.endswith("bytes  undamaged, latest")
    path = out / "checkpoints/student-step2/rank-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    ended = command("checkpoints", str(out / "checkpoints"))
    assert ended.code == 1
    assert f"damaged: {path} has" in ended.output.splitlines()[1]
    assert ended.output.splitlines()[0].endswith("undamaged, best (score 0.25)")


@pytest.mark.parametrize(("asked", "step"), [("1", 1), ("latest", 2), ("best", 1)])
def test_exported_checkpoint_is_a_teacher(out: Path, tmp_path: Path, asked: str, step: int) -> None:
    ended = command("checkpoints", str(out), "--export", asked, str(tmp_path / "model"))
    assert (ended.code, ended.output, ended.complaints) == (0, f"wrote {tmp_path / 'model'}\n", "")
    exported, expected = load_teacher(tmp_path / "model").state_dict(), new_decoder(CONFIG, step).state_dict()
    assert all(torch.equal(exported[name], expected[name]) for name in expected)


@pytest.mark.parametrize("step", ["last", "-1"])
def test_step_that_is_no_number_and_no_name_is_refused(out: Path, step: str) -> None:
    ended = command("checkpoints", str(out), "--export", step, "model")
    assert ended.code == 2 and "Invalid value for '--export'" in ended.complaints
