"""Memory of the data of a run on chats, and of attention in packed rows: `python benchmarks/chats.py [MB] [LENGTH]`.

A token of the first table is a byte, the most tokens that a file can have. The peaks are measured in forked processes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import peak_bytes
from transformers import LlamaConfig, LlamaForCausalLM

from reference_trainer.data.documents import rows_of_documents
from reference_trainer.data.text import ShuffledBatches
from reference_trainer.huggingface.attention import isolate_documents
from reference_trainer.huggingface.chats import ChatWriter, read_chats, write_chats
from reference_trainer.huggingface.models import Causal

SHAPE: dict[str, Any] = {"length": 1024, "batch_size": 8, "device": torch.device("cpu")}
MODEL = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
MIB = 2**20


class Bytes:
    """A tokenizer whose tokens are bytes."""

    eos_token_id = 0

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}


def write_lines(path: Path, megabytes: int) -> None:
    line = json.dumps({"prompt": "a" * 100, "completion": "b" * 400}) + "\n"
    with path.open("w") as file:
        for _ in range(megabytes * MIB // len(line)):
            file.write(line)


def epoch(folder: Path) -> None:
    """Read every batch of an epoch in packed rows."""
    batches = ShuffledBatches(sequences=rows_of_documents(read_chats(folder).documents, pack=True, **SHAPE), seed=0)
    began = time.process_time()
    for position in range(1, batches.batches + 1):
        batches.batch(1, position)
    print(f"    a batch of 8 x 1024 tokens: {(time.process_time() - began) / batches.batches * 1e3:.2f} ms", flush=True)


def data(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name, "chats.jsonl")
        for size in (megabytes // 10, megabytes):
            write_lines(path, size)
            peaks = [
                peak_bytes(path, lambda path: write_chats(path, ChatWriter(Bytes()), 1024, folder)),
                peak_bytes(folder, epoch),
            ]
            print(f"{size} MB: {peaks[0] / MIB:.0f} MiB to write tokens, {peaks[1] / MIB:.0f} MiB for an epoch")


def step(is_masked: bool, row: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Take the gradient of a packed row."""
    model = Causal(LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **MODEL)))
    if not is_masked:
        isolate_documents("the model", model, print)
    began = time.process_time()
    model(*row).logits.square().mean().backward()
    print(f"    {time.process_time() - began:.2f} CPU s", flush=True)


def attention(length: int) -> None:
    row = torch.zeros(1, length, dtype=torch.int64), torch.arange(length)[None] // 512
    for name, is_masked in (("mask", True), ("by document", False)):
        print(f"{length} tokens, {name}: {peak_bytes(row, partial(step, is_masked)) / MIB:.0f} MiB")


if __name__ == "__main__":
    megabytes, length = (*map(int, sys.argv[1:]), *(300, 8192)[len(sys.argv) - 1 :])
    data(megabytes)
    attention(length)
