"""Small causal language models of transformers, a tokenizer of whole words, and conversations in these words."""

import json
import random
from pathlib import Path
from typing import Any

import torch

CONVERSATIONS = 40
MARKS = ["<end>", "<user>", "<assistant>"]
WORDS = [f"w{n}" for n in range(20)]
NUMBERS = [f"n{n}" for n in range(CONVERSATIONS)]
VOCABULARY = [*MARKS, *WORDS, *NUMBERS]
FIRST_NUMBER = len(MARKS) + len(WORDS)
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def conversations(seed: int) -> list[dict[str, Any]]:
    """Return conversations of one or two turns, with their numbers in the first turn."""
    draw, drawn = random.Random(seed), []
    for number in NUMBERS:
        turns: list[dict[str, str]] = []
        for turn in range(draw.choice([1, 2])):
            question, answer = (" ".join(draw.choices(WORDS, k=draw.randint(2, 4))) for _ in range(2))
            turns.append({"role": "user", "content": question if turn else f"{number} {question}"})
            turns.append({"role": "assistant", "content": answer})
        drawn.append({"messages": turns})
    return drawn


def word_tokenizer() -> Any:
    """Return a fast tokenizer of transformers whose tokens are the words of `VOCABULARY`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.WordLevel({word: n for n, word in enumerate(VOCABULARY)}, unk_token="<end>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")
    words.chat_template = TEMPLATE
    return words


def random_llama(vocabulary: int, width: int, *, layers: int = 2, seed: int = 0, **options: Any) -> Any:
    """Return a random Llama; `options` are further settings of its configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": layers, "initializer_range": 0.3}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **shape | heads | options))


def write_causal(directory: Path, words: Any, width: int, dtype: torch.dtype, **options: Any) -> None:
    """Write a random Llama with a tokenizer, as transformers saves both."""
    random_llama(len(VOCABULARY), width, seed=width, **options).to(dtype).save_pretrained(directory)
    words.save_pretrained(directory)


def write_chats(directory: Path, seed: int) -> dict[str, Any]:
    """Write a bfloat16 teacher, a student with tied embeddings, and chats. Return the settings that name them."""
    words = word_tokenizer()
    write_causal(directory / "teacher", words, 32, torch.bfloat16)
    write_causal(directory / "student", words, 16, torch.float32, tie_word_embeddings=True)
    (directory / "chats.jsonl").write_text("\n".join(map(json.dumps, conversations(seed))))
    paths = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "data_cache": "cache", "out": "out"}
    return {**{name: directory / path for name, path in paths.items()}, "length": 40}
