"""Models of transformers whose output layer is applied in chunks, and one that forms its logits itself."""

from typing import Any

import pytest
import torch

from reference_trainer.distillation import heads
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.huggingface.models import Causal
from reference_trainer.models.placement import computing_in
from reference_trainer.training.window import kd_window

transformers = pytest.importorskip("transformers")
V = 64
SHAPE = {
    "vocab_size": V,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
OFFERED = {
    "Llama": {"tie_word_embeddings": False},
    "Qwen2": {"tie_word_embeddings": True},
    "Gemma": {},
    "Granite": {"logits_scaling": 8.0},
    "Gemma2": {"final_logit_softcapping": 30.0},
    "Cohere": {"logit_scale": 0.5},
    "GPTNeoX": {},
    "Phi": {},  # the output layer has a bias
}


def model(name: str, seed: int, **options: Any) -> Causal:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = getattr(transformers, f"{name}Config")(**SHAPE | options)
        return Causal(getattr(transformers, f"{name}ForCausalLM")(config)).train()


def gradients(student: Causal, teacher: Causal, dtype: str, lines: list[str]) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(V, (3, 12), generator=draw)
    labels = tokens.where(torch.rand(tokens.shape, generator=draw) < 0.6, -100)
    weights = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)
    student.zero_grad()
    providers = (
        ModuleTeacher(computing_in(dtype, teacher), V, note=lines.append),
        ModuleStudent(computing_in(dtype, student), V, note=lines.append),
    )
    kd_window(*providers, [Batch(tokens=tokens, labels=labels)], weights)
    return {name: weight.grad.clone() for name, weight in student.named_parameters() if weight.grad is not None}


def in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LEAST_VOCABULARY", 1)
    monkeypatch.setattr(heads, "CPU_CHUNK_BYTES", 5 * V * 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OFFERED)
def test_chunked_gradients_are_as_exact_as_unchunked(monkeypatch: pytest.MonkeyPatch, name: str, dtype: str) -> None:
    student, teacher, lines = model(name, 0, **OFFERED[name]), model("Llama", 1), list[str]()
    module: Any = student.model
    enable = getattr(module, "activation_checkpointing_enable", None) or module.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    at_once = gradients(student, teacher, dtype, lines)
    exact = gradients(student.double(), teacher.double(), "float64", lines)
    student.float(), teacher.float()
    in_chunks(monkeypatch)
    chunked = gradients(student, teacher, dtype, lines)
    assert lines == []
    assert chunked.keys() == exact.keys()
    for key, wanted in exact.items():
        size = float(wanted.norm()) or 1.0
        expected, seen = (float((gradient[key].double() - wanted).norm()) / size for gradient in (at_once, chunked))
        rounding = 1e-6 if dtype == "float32" else 5e-3
        assert seen <= 1.5 * expected + rounding, f"{key} is off by {seen:.1e}, with all logits by {expected:.1e}"
