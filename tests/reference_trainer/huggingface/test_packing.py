"""Attention in rows of several documents."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from reference_trainer import SettingError
from reference_trainer.huggingface.attention import isolate_documents
from reference_trainer.huggingface.models import Causal, compile_layers, load_model

transformers = pytest.importorskip("transformers")


def test_long_packed_rows_form_no_mask(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and gradients are the same as with a mask, in float64; a model that takes no such attention has a line."""
    models, lines = [load_model(place / "student", dtype=torch.float64) for _ in range(2)], list[str]()
    isolate_documents("the student", models[0], lines.append)
    assert lines == []
    tokens = torch.arange(40).view(2, 20) % 100
    segments = torch.tensor([[1] * 7 + [2] * 1 + [3] * 9 + [0] * 3, [1] * 20])
    masked = models[1](tokens, segments).logits
    with monkeypatch.context() as patch:
        patch.setattr("transformers.masking_utils.sdpa_mask", None)  # which would form a mask
        plain = models[0](tokens, segments).logits
    assert torch.allclose(plain, masked, rtol=0, atol=1e-12)
    for logits in (plain, masked):
        logits.square().sum().backward()
    pairs = zip(models[0].parameters(), models[1].parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-9, atol=1e-12) for a, b in pairs)
    eager = load_model(place / "student", dtype=torch.float64)
    eager.model.set_attn_implementation("eager")
    isolate_documents("the student", eager, lines.append)
    assert lines == ["the student: attention in packed rows forms a mask of length x length"]


@pytest.mark.parametrize("window", [None, 3])
def test_padded_prompts_are_continued_as_without_isolation(window: int | None) -> None:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.MistralConfig(vocab_size=64, num_hidden_layers=1, sliding_window=window, **shape)
    models = [Causal(transformers.MistralForCausalLM(config).double().eval()) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    isolate_documents("the student", models[0], print)
    tokens = torch.arange(12).view(2, 6)
    options = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6]), "max_new_tokens": 6, "do_sample": False}
    generated, expected = (model.model.generate(tokens, pad_token_id=0, **options) for model in models)
    assert torch.equal(generated, expected)


def test_documents_reach_the_attention_below_an_adapter(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    from reference_trainer.huggingface.adapters import add_adapter

    base = load_model(place / "student", dtype=torch.float64)
    isolate_documents("the student", base, print)
    tokens, segments = torch.arange(20)[None], torch.tensor([[1] * 7 + [2] * 13])
    expected = base(tokens, segments).logits
    adapted = add_adapter(base, place / "student", rank=2, options={}, seed=0)
    monkeypatch.setattr("transformers.masking_utils.find_packed_sequence_indices", None)  # which reads positions
    assert torch.allclose(adapted(tokens, segments).logits, expected, rtol=0, atol=1e-12)


class Alone(transformers.LlamaPreTrainedModel):
    """A model with attention of its own, which takes no documents."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embedding = torch.nn.Embedding(16, 16)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None, **_: Any) -> Any:
        return SimpleNamespace(logits=self.embedding(input_ids))


@pytest.mark.parametrize("implementation", ["sdpa", "flash_attention_2"])
def test_flash_attention_that_takes_no_documents_is_refused(implementation: str) -> None:
    model, lines = Alone(transformers.LlamaConfig(vocab_size=16)), list[str]()
    model.config._attn_implementation_internal = implementation
    if implementation == "sdpa":
        isolate_documents("the student", Causal(model), lines.append)
        assert lines == ["the student: attention in packed rows forms a mask of length x length"]
        return
    with pytest.raises(SettingError, match="flash_attention_2 cannot separate the documents of packed rows in Alone"):
        isolate_documents("the student", Causal(model), lines.append)


def test_compiled_layers_have_no_graph_for_boundaries_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models, with and without gradients, need more graphs of a function than PyTorch's limit of 8."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def compiled(width: int) -> Causal:
        shape = {"hidden_size": width, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
        config = transformers.LlamaConfig(vocab_size=64, num_hidden_layers=1, head_dim=8, **shape)
        model = Causal(transformers.LlamaForCausalLM(config))
        isolate_documents("the model", model, print)
        compile_layers("the model", model, backend)
        return model

    torch.compiler.reset()
    teacher, student = compiled(16), compiled(8)
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    counts = []
    for rows, length in ((2, 6), (1, 5)):
        for first in (2, 3):
            tokens = torch.arange(rows * length).view(rows, length) % 64
            segments = torch.tensor([[1] * first + [2] * (length - first)] * rows)
            with torch.no_grad():
                teacher(tokens, segments)
                student.eval()(tokens, segments)
            student.train()(tokens, segments).logits.sum().backward()
            counts.append(len(graphs))
    assert counts[::2] == counts[1::2]  # other boundaries, no further graph
