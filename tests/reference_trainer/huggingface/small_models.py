"""Chats and tiny random models of transformers, written to disk."""

import hashlib
import json
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import Settings
from tests.reference_trainer.forked import Process

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
MARKS = ["<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def conversation(draw: random.Random) -> dict[str, Any]:
    turns = []
    for _ in range(draw.choice([1, 2])):
        words = " ".join(draw.choices(["red", "green", "one", "two", "cat"], k=draw.randint(2, 5)))
        turns += [{"role": "user", "content": f"repeat {words}"}, {"role": "assistant", "content": words}]
    return {"messages": turns}


def tokenizer(text: str, size: int = 300) -> Any:
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer, model.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=MARKS, initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    model.train_from_iterator(text.splitlines(), trainer)
    result = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|end|>", pad_token="<|end|>")
    result.chat_template = TEMPLATE
    return result


def write_model(folder: Path, words: Any, width: int, *, weights: bool = True, **others: Any) -> None:
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=0,
        **others,
    )
    with torch.random.fork_rng():
        torch.manual_seed(width)
        (transformers.LlamaForCausalLM(config) if weights else config).save_pretrained(folder)
    words.save_pretrained(folder)


def with_models(folder: Path) -> Path:
    """Write chats, a teacher, a student and the configuration of another one; return the folder."""
    draw = random.Random(0)
    text = "\n".join(json.dumps(conversation(draw)) for _ in range(30))
    (folder / "chats.jsonl").write_text(text)
    words = tokenizer(text)
    write_model(folder / "teacher", words, 32)
    write_model(folder / "student", words, 16)
    write_model(folder / "new", words, 16, weights=False)
    return folder


def settings(place: Path, out: Path, **others: Any) -> Settings:
    usual: dict[str, Any] = {"teacher": place / "teacher", "student": place / "student", "data": place / "chats.jsonl"}
    usual |= {"length": 48, "batch_size": 2, "epochs": 1, "warmup": 2, "save_every": 4, "device": "cpu"}
    return Settings(**usual | {"out": out, "hang_after": 0.0} | others)


def run_ranks(place: Path, out: Path, count: int, *options: str) -> None:
    """Distill in float64 on `count` ranks, each a fork of this process, with 4 conversations in a step of all ranks."""
    models = (f"--{name}={place / name}" for name in ("teacher", "student"))
    usual = f"--data {place / 'chats.jsonl'} --length 48 --epochs 1 --warmup 2 --dtype float64 --device cpu".split()
    command = ["distill", *models, *usual, "--batch-size", str(4 // count), *options, "--out", str(out)]
    places: list[dict[str, str]] = [{}]
    if count > 1:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(unused.getsockname()[1])}
        places = [{**shared, "WORLD_SIZE": str(count), "RANK": str(rank)} for rank in range(count)]
    started = [Process(command, place, {**os.environ, **variables}) for variables in places]
    for process in started:
        assert process.wait() == 0, process.stderr.read()


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
