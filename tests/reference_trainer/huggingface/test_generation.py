"""On-policy distillation of models of transformers, as a user runs it; the contract `generation` has its claims."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import Lines, SettingError, distill
from reference_trainer.huggingface.generation import end_tokens
from reference_trainer.huggingface.parts import HuggingFace
from tests.reference_trainer.huggingface.small_models import run_ranks, settings, tokenizer

pytest.importorskip("transformers")


@pytest.mark.parametrize("options", [{"documents": "pack"}, {"lora": 2}, {"dtype": "bfloat16"}], ids=str)
def test_packed_adapted_and_bfloat16_students_generate(place: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    result = distill(
        settings(place, tmp_path / "out", on_policy=1.0, answer_tokens=4, max_steps=2, log_every=1, **options)
    )
    assert result.train.steps_completed == 2 and result.train.metrics["loss"] > 0


def test_two_ranks_generate(place: Path, tmp_path: Path) -> None:
    run_ranks(place, tmp_path / "out", 2, "--on-policy", "0.5", "--answer-tokens", "4", "--max-steps", "3")
    assert (tmp_path / "out/manifest.json").exists()


def test_stored_outputs_are_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="'on_policy' and 'teacher_outputs'"):
        distill(settings(place, tmp_path / "out", on_policy=0.5, teacher=None, teacher_outputs=tmp_path))


def test_sharded_student_is_refused(place: Path, tmp_path: Path) -> None:
    chosen = settings(place, tmp_path / "out", on_policy=0.5, strategy="fsdp2")
    environment = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    run = HuggingFace(chosen, lines=Lines(io.StringIO()), environment=environment)
    run.device = torch.device("cpu")
    with pytest.raises(SettingError, match="--on-policy cannot generate with a sharded student"):
        run.make_batches()


def test_labels_of_the_student_itself_are_named(place: Path, tmp_path: Path) -> None:
    output = io.StringIO()
    distill(settings(place, tmp_path / "out", on_policy=1.0, ce_weight=1.0, max_steps=1), lines=Lines(output))
    assert "on_policy: with a ce_weight" in output.getvalue()


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}", ["<|end|>"]),
        ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}", ["<|end|>", "<|user|>"]),
        (None, ["<|end|>"]),
    ],
    ids=["end of a message", "mark of the next message", "no template"],
)
def test_end_of_an_answer_is_that_of_the_template(template: str | None, ends: list[str]) -> None:
    words = tokenizer("red green one two " * 20)
    words.chat_template = template
    assert end_tokens(words, {}) == set(words.convert_tokens_to_ids(ends))
