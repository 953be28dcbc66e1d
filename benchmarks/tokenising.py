"""Tokens of chats beside `datasets.map`: `python benchmarks/tokenising.py [CONVERSATIONS] [WORKERS]`.

Both make the tokens of every conversation and the mask of its answers, interleaved, with and without worker processes.
`datasets.map` renders a conversation by a template that marks answers, and checks nothing. Data are drawn.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import tokenizers
import transformers

from reference_trainer.huggingface.chats import ChatWriter, write_chats

PLAIN = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}"
    "<|end|>\n{% endgeneration %}{% else %}{{ m['content'] }}<|end|>\n{% endif %}{% endfor %}"
)
ROUNDS = 3


def conversation(draw: random.Random, words: list[str]) -> dict[str, Any]:
    turns = [{"role": "system", "content": "You are a helpful assistant."}]
    for _ in range(draw.randint(1, 4)):
        turns.append({"role": "user", "content": " ".join(draw.choices(words, k=draw.randint(10, 80)))})
        turns.append({"role": "assistant", "content": " ".join(draw.choices(words, k=draw.randint(20, 150)))})
    return {"messages": turns}


def draw_words(draw: random.Random) -> list[str]:
    return ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(3000)]


def tokenizer(text: list[str]) -> Any:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    model.pre_tokenizer, model.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(text, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|end|>")


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return CPU seconds, including ended child processes, and wall seconds."""
    usages = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

    def cpu() -> float:
        return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, usages))

    before, began = cpu(), time.perf_counter()
    call()
    return cpu() - before, time.perf_counter() - began


def compare(conversations: int, workers: int) -> None:
    draw = random.Random(0)
    words = draw_words(draw)
    rows = [json.dumps(conversation(draw, words)) for _ in range(conversations)]
    words_tokenizer = tokenizer(rows[:1000])
    datasets.disable_progress_bars()
    datasets.disable_caching()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "chats.jsonl")
        path.write_text("\n".join(rows))
        raw = datasets.Dataset.from_json(str(path), cache_dir=name)

        def written(processes: int) -> None:
            words_tokenizer.chat_template = PLAIN
            with tempfile.TemporaryDirectory() as place:
                write_chats(path, ChatWriter(words_tokenizer), 4096, Path(place), workers=processes)

        def mapped(processes: int) -> None:
            words_tokenizer.chat_template = MARKED
            raw.map(
                lambda row: dict(
                    words_tokenizer.apply_chat_template(
                        row["messages"], return_dict=True, return_assistant_tokens_mask=True
                    )
                ),
                num_proc=processes or None,
                remove_columns=raw.column_names,
            )

        variants = [(kind, processes) for processes in (0, workers) for kind in (written, mapped)]
        times: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for number in range(ROUNDS + 1):
            for kind, processes in variants:
                measured = seconds(partial(kind, processes))
                if number:
                    times.setdefault((kind.__name__, processes), []).append(measured)
    for processes in (0, workers):
        ours, theirs = (
            [statistics.median(values) for values in zip(*times[name, processes], strict=True)]
            for name in ("written", "mapped")
        )
        print(
            f"{conversations} conversations, {processes} workers: {ours[0]:.2f} CPU s, {ours[1]:.2f} s; datasets.map "
            f"{theirs[0]:.2f} CPU s, {theirs[1]:.2f} s; ratios {ours[0] / theirs[0]:.2f}, {ours[1] / theirs[1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    conversations, workers = (*map(int, sys.argv[1:]), *(3000, 2)[len(sys.argv) - 1 :])
    compare(conversations, workers)
