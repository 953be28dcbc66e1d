"""A distillation into a LoRA adapter, and runs that begin with models of transformers, as a user runs them."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from reference_trainer import SettingError, distill
from reference_trainer.errors import CheckpointError, ModelFileError
from reference_trainer.huggingface.adapters import add_adapter
from reference_trainer.huggingface.models import load_model, load_tokenizer
from reference_trainer.storage.export import verify_manifest
from tests.reference_trainer.commands import command
from tests.reference_trainer.huggingface.small_models import digest, run_ranks, settings, write_model

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
LORA = {"lora": 2, "lora_options": '{"lora_dropout": 0.1}'}
ADAPTER = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def trained(place: Path) -> Any:
    """A run of 14 steps, whose checkpoint of step 4 is kept."""
    return distill(settings(place, place / "whole", keep=0, **LORA))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model.eval()(torch.arange(8)[None]).logits
    return result


def test_adapter_is_read_by_peft_and_merged_by_a_flag(place: Path, trained: Any, tmp_path: Path) -> None:
    base = transformers.AutoModelForCausalLM.from_pretrained(place / "student")
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    model = peft.PeftModel.from_pretrained(base, place / "whole")
    assert torch.equal(logits(model), logits(trained.student))
    assert not torch.equal(logits(model), logits(transformers.AutoModelForCausalLM.from_pretrained(place / "student")))
    parameters = trained.student.model.get_base_model().named_parameters()
    after = {name.replace("base_layer.", ""): weight for name, weight in parameters}
    assert all(torch.equal(old, after[name]) for name, old in before.items() if name in after), "the base is trained"
    assert sorted(json.loads((place / "whole/manifest.json").read_text())["sha256"]) == ["adapter_config.json", ADAPTER]
    verify_manifest(place / "whole")
    merged = distill(settings(place, tmp_path / "merged", lora_merge=True, save_every=0, **LORA))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert torch.allclose(logits(again), logits(model), atol=1e-5)
    assert torch.equal(logits(again), logits(merged.student))


@pytest.mark.filterwarnings("error")
def test_adapter_is_added_without_warnings_about_names_in_transformers(place: Path) -> None:
    student = load_model(place / "student", dtype=torch.float32)
    add_adapter(student, place / "student", rank=2, options={}, seed=0)


def test_new_weights_are_drawn_without_seeding_the_generators_of_gpus(place: Path) -> None:
    with mock.patch("torch.cuda.manual_seed_all") as seeded:
        torch.manual_seed(0)
        seeded.assert_called_once()
        seeded.reset_mock()
        student = load_model(place / "new", dtype=torch.float32, seed=1)
        add_adapter(student, place / "new", rank=2, options={}, seed=1)
        seeded.assert_not_called()


@pytest.mark.parametrize("layer", ["lm_head", "embed_tokens"])
def test_merged_adapter_of_a_tied_layer_gives_the_logits_of_the_trained_model(
    place: Path, tmp_path: Path, layer: str
) -> None:
    """An adapter of one of two tied layers belongs to that one alone; merged into both, it gives other logits."""
    write_model(tmp_path / "tied", load_tokenizer(place / "student"), 16, tie_word_embeddings=True)
    options = {"student": tmp_path / "tied", "lora": 4, "lora_options": json.dumps({"target_modules": [layer]})}
    result = distill(settings(place, tmp_path / "out", lora_merge=True, save_every=0, max_steps=3, lr=0.1, **options))
    ended = command("evaluate", str(tmp_path / "out"), "--device", "cpu", "--json")
    sums = json.loads(ended.output)["models"][0]["sums"]["hard_loss"]
    assert sums["sum"] == pytest.approx(result.held_back["hard_loss"].sum, rel=1e-5)


def test_adapter_and_its_checkpoint_are_evaluated_as_its_run_did(place: Path, trained: Any) -> None:
    models = [place / "whole", place / "whole/checkpoints/student-latest"]
    ended = command("evaluate", *map(str, models), "--teacher", str(place / "teacher"), "--device", "cpu", "--json")
    assert ended.code == 0, ended.complaints
    for entry in json.loads(ended.output)["models"]:
        for name in ("hard_loss", "kl_at_1"):
            expected, seen = trained.held_back[name], entry["sums"][name]
            assert seen == {"sum": pytest.approx(expected.sum, rel=1e-6), "count": expected.count}


def test_two_ranks_train_the_adapter(place: Path, tmp_path: Path) -> None:
    runs = {"one": (1, ()), "two": (2, ()), "shards": (2, ("--strategy", "fsdp2"))}
    for name, (count, options) in runs.items():
        run_ranks(place, tmp_path / name, count, "--lora", "2", "--save-every", "4", *options)
    first, *others = (load_file(tmp_path / name / ADAPTER) for name in runs)
    for other in others:
        assert all(torch.allclose(other[name], first[name], rtol=0, atol=1e-7) for name in first)


def test_run_begins_with_an_adapter_or_a_model(place: Path, trained: Any, tmp_path: Path) -> None:
    still = {"max_steps": 1, "lr": 1e-30, "save_every": 0}
    distill(settings(place, tmp_path / "adapter", init_from=place / "whole", **LORA, **still))
    assert (tmp_path / "adapter" / ADAPTER).read_bytes() == (place / "whole" / ADAPTER).read_bytes()
    distill(settings(place, tmp_path / "one", max_steps=2))
    distill(settings(place, tmp_path / "model", init_from=tmp_path / "one", student=place / "new", **still))
    assert digest(tmp_path / "model") == digest(tmp_path / "one")
    begun = json.loads((tmp_path / "model/manifest.json").read_text())["initial_weights"]
    assert begun["step"] == 2 and begun["path"] == str(tmp_path / "one")
    distill(settings(place, tmp_path / "foreign", init_from=place / "student", student=place / "new", **still))
    assert digest(tmp_path / "foreign") == digest(place / "student")
    checkpoint = place / "whole/checkpoints/student-step4"
    distill(settings(place, tmp_path / "step", init_from=checkpoint, **LORA, **still))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lora_options": '{"rank": 3}'}, SettingError, "lora_options: .*rank"),
        ({"lora_options": '{"target_modules": ["nothing"]}'}, SettingError, "lora_options: .*nothing"),
        ({"lora_merge": True, "lora_options": '{"lora_bias": true}'}, SettingError, "lora_bias cannot be merged into"),
        ({"student": "new"}, SettingError, "--lora needs a trained student"),
        ({"init_from": "whole", "lora": 3}, SettingError, "lora_alpha 4, but the run has 6"),
        ({"init_from": "whole", "lora": 3, "lora_options": '{"lora_alpha": 4}'}, CheckpointError, "does not fit"),
        ({"init_from": "student"}, ModelFileError, "expected an adapter of peft"),
        ({"init_from": "cut"}, ModelFileError, "cannot load .*cut: .*; expected an adapter of peft"),
    ],
)
def test_what_does_not_fit(place: Path, trained: Any, tmp_path: Path, change: Any, error: Any, message: str) -> None:
    if change.get("init_from") == "cut":
        shutil.copytree(place / "whole", place / "cut", ignore=shutil.ignore_patterns("manifest.json", "checkpoints"))
        (place / "cut" / ADAPTER).write_bytes((place / "whole" / ADAPTER).read_bytes()[:500])
    paths = {name: place / folder for name, folder in change.items() if name in ("student", "init_from")}
    with pytest.raises(error, match=message):
        distill(settings(place, tmp_path / "out", **{"lora": 2} | change | paths))
