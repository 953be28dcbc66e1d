"""Plans of runs on models of Hugging Face, of packaged recipes, and settings that a resumed run takes over."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from falsifiers.planning.falsify_planning import MemoryRecorder
from reference_trainer import Lines, Settings, distill
from reference_trainer.config.sources import gather, recipes
from reference_trainer.pipeline.planning import plan, plan_lines
from tests.reference_trainer.commands import command
from tests.reference_trainer.huggingface.small_models import settings, transformers


@pytest.mark.parametrize(
    "chosen",
    [
        {"lora": 4},
        {"documents": "pack", "accumulate": 2},
        {"weights": "bfloat16", "dtype": "bfloat16"},
    ],
    ids=["adapter", "packed", "masters"],
)
def test_plan_has_bytes_steps_and_tokens_of_the_run(place: Path, tmp_path: Path, chosen: dict[str, Any]) -> None:
    usual, measured = settings(place, tmp_path / "out", save_every=0, **chosen), MemoryRecorder()
    planned = plan(usual)
    result = distill(usual, callbacks=[measured], lines=Lines(io.StringIO()))
    buffers = sum(buffer.nbytes for buffer in result.student.buffers())
    assert buffers < 1000  # frequencies of rotary positions, in float32
    assert {part: planned.memory[part] for part in measured.sizes} == measured.sizes
    assert (planned.steps, planned.predicted_tokens) == (result.train.steps_completed, result.train.tokens)


def test_plan_counts_the_scores_of_eager_attention(place: Path, tmp_path: Path) -> None:
    usual, config = settings(place, tmp_path / "out"), transformers.AutoConfig.from_pretrained(place / "student")
    eager, other = (
        plan(usual.replace(attn_implementation=name)).memory["activations (estimate)"] for name in ("eager", "sdpa")
    )
    # 5 bytes of a score in 16 bits, twice as many in float32.
    scores = usual.data.batch_size * config.num_attention_heads * usual.data.length**2
    assert eager - other == config.num_hidden_layers * scores * 10


@pytest.mark.parametrize("name", sorted(recipes()))
def test_packaged_recipe_is_planned_from_configurations_alone(name: str, tmp_path: Path) -> None:
    for model, width in (("student", 64), ("teacher", 128)):
        config = transformers.Qwen3Config(
            hidden_size=width, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            intermediate_size=2 * width, vocab_size=151936,
        )  # fmt: skip
        config.save_pretrained(tmp_path / model)
    flags = {"student": str(tmp_path / "student"), "teacher": str(tmp_path / "teacher"), "data": "absent.jsonl"}
    planned = plan(gather(flags, {}, Path(name)), ranks=8)
    text = "\n".join(plan_lines(planned))
    assert all(planned.memory[part] for part in ("weights", "gradients", "optimizer state", "teacher")), text
    assert "cannot read absent.jsonl" in text
    assert "time:" not in text


def test_recipe_is_listed_printed_and_suggested() -> None:
    listed, printed = command("recipes"), command("recipes", "one-gpu")
    assert [line.split()[0] for line in listed.output.splitlines()] == sorted(recipes())
    assert printed.output == recipes()["one-gpu"].read_text()
    refused = command("distill", "--config", "one_gpu")
    assert refused.code == 2
    assert "one of eight-gpus, one-gpu, two-machines" in refused.complaints


def test_run_on_chats_resumes_with_its_output_alone(place: Path, tmp_path: Path) -> None:
    """Data, models, cache and adapter are taken from the run."""
    first = settings(place, tmp_path / "out", save_every=1, max_steps=1, lora=2, length=48)
    distill(first, lines=Lines(io.StringIO()))
    output = io.StringIO()
    distill(Settings(out=tmp_path / "out", resume=Path("latest"), force=True, max_steps=2), lines=Lines(output))
    assert "defaults of a student" not in output.getvalue()
    used = json.loads((tmp_path / "out/manifest.json").read_text())["settings"]
    assert (used["lora"], used["length"], used["lr"], used["max_steps"]) == (2, 48, 2e-4, 2)
