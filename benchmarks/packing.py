"""CPU time of forward and backward over packed rows: `OMP_NUM_THREADS=1 python benchmarks/packing.py [ROUNDS]`.

by length: `isolate_documents`. by slices: the function that it replaced, a slice for each document. with a mask: the
attention of transformers.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from measuring import taken
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from reference_trainer.distillation.packed_rows import PackedRows, placed_segments
from reference_trainer.huggingface.attention import isolate_documents
from reference_trainer.huggingface.models import Causal

SHAPE: dict[str, Any] = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
BATCHES = ((2, 1024, 8), (2, 1024, 32), (4, 2048, 16), (2, 2048, 32))
"""Rows, their length, and documents in each."""


def by_slices(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: None, **options: Any) -> Any:
    documents: PackedRows = options.pop("documents")
    rows = []
    for b, lengths in enumerate(documents.rows):
        begin, parts = 0, []
        for length in lengths:
            states = [x[b : b + 1, :, begin : begin + length] for x in (query, key, value)]
            parts.append(sdpa_attention_forward(module, *states, None, **options)[0])
            begin += length
        rows.append(torch.cat(parts, dim=1))
    return torch.cat(rows), None


def new_model() -> Any:
    torch.manual_seed(0)
    return Causal(LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **SHAPE)))


def step(model: Any) -> Callable[[tuple[Tensor, Tensor]], None]:
    return lambda batch: model(*batch).logits.square().mean().backward()


def main(rounds: int) -> None:
    AttentionInterface.register("by_document_slices", by_slices)
    AttentionMaskInterface.register("by_document_slices", lambda **_: None)
    models = {"by length": new_model(), "by slices": new_model(), "with a mask": new_model()}
    isolate_documents("the model", models["by length"], print)
    models["by slices"].model.set_attn_implementation("by_document_slices")
    for B, T, documents in BATCHES:
        begins = torch.rand(B, T - 1).argsort(1)[:, : documents - 1] + 1
        segments = 1 + torch.zeros(B, T, dtype=torch.int64).scatter_(1, begins, 1).cumsum(1)
        batch = torch.randint(SHAPE["vocab_size"], (B, T)), placed_segments(segments, torch.device("cpu"))
        times = taken(batch, {name: step(model) for name, model in models.items()}, rounds)
        line = [f"{B} rows of {T} tokens, {documents} documents each:"]
        for name, values in times.items():
            ratio = statistics.median(a.cpu / b.cpu for a, b in zip(values, times["by slices"], strict=True))
            line.append(f"{name} {statistics.median(x.cpu for x in values) * 1e3:.0f} ms ({ratio:.2f}),")
        print(*line, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
