"""The callback of docs/trainer.md that prints what the student generates."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import Lines, distill, read_metrics
from tests.pages import BLOCK
from tests.reference_trainer.huggingface.small_models import settings

transformers = pytest.importorskip("transformers")
PAGE = Path(__file__).parents[3] / "docs/trainer.md"
PROMPTS = ["repeat red", "repeat two cat"]


def samples() -> Any:
    (body,) = (body for _, info, body in BLOCK.findall(PAGE.read_text()) if "file=samples.py" in info)
    names: dict[str, Any] = {}
    exec(body, names)
    return names["Samples"](PROMPTS, 5)


def test_samples_are_those_of_the_saved_model_and_leave_the_run_as_it_is(place: Path, tmp_path: Path) -> None:
    """With dropout, so that another mode or random state gives other weights."""
    student = shutil.copytree(place / "student", tmp_path / "student")
    config = json.loads((student / "config.json").read_text()) | {"attention_dropout": 0.3}
    (student / "config.json").write_text(json.dumps(config))
    output, logged, weights = io.StringIO(), [], []
    for name, callbacks in (("without", []), ("with", [samples()])):
        given: dict[str, Any] = {"student": student, "eval_every": 2, "max_steps": 4, "log_every": 1}
        distill(settings(place, tmp_path / name, **given), callbacks=callbacks, lines=Lines(output))
        logged.append([(line.step, line.metrics["loss"]) for line in read_metrics(tmp_path / name / "metrics.jsonl")])
        files = ["model.safetensors", "generation_config.json", "checkpoints/student-step4/rank-00000.safetensors"]
        weights.append([(tmp_path / name / each).read_bytes() for each in files])
    assert logged[0] == logged[1] and weights[0] == weights[1]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "with")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "with")
    for prompt in PROMPTS:
        chat = [{"role": "user", "content": prompt}]
        given = words.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        tokens = given["input_ids"]
        for _ in range(5):  # none of these is the end of a text
            best = model(tokens).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], dim=1)
        text = words.decode(tokens[0, given["input_ids"].shape[1] :], skip_special_tokens=True)
        assert f"step 4: {prompt!r} -> {text!r}" in output.getvalue().splitlines()
    assert output.getvalue().count("step 2: ") == len(PROMPTS)
