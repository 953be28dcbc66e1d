"""A whole distillation of models of transformers: a LoRA adapter on packed chats, evaluated, merged and exported.

The subject has `HuggingFace`, as `reference_trainer.huggingface.parts` does. Models and tokenizer are tiny, random and
made here, so nothing is downloaded. The weights of the teacher are bfloat16; the student has tied layers, and an
adapter of one of them. Each conversation has a number of its own, which is a token.
"""

import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import reference_trainer
from pv import observe
from reference_trainer.huggingface.models import Causal, save_model

CONVERSATIONS, HELD_BACK, EVALUATED = 40, range(36, 40), (36, 38)
"""How many there are, which are held back, and which two of these are evaluated."""
MARKS = ["<end>", "<user>", "<assistant>"]
WORDS = [f"w{n}" for n in range(20)]
NUMBERS = [f"n{n}" for n in range(CONVERSATIONS)]
VOCABULARY = [*MARKS, *WORDS, *NUMBERS]
FIRST_NUMBER = len(MARKS) + len(WORDS)
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ADAPTER = {"target_modules": ["q_proj", "v_proj", "lm_head"], "lora_dropout": 0.1}
SETTINGS = {"lora": 4, "lora_options": json.dumps(ADAPTER), "lora_merge": True, "documents": "pack", "length": 40}
SETTINGS |= {"ce_weight": 0.5, "kd_weight": 0.5, "lr": 0.03, "warmup": 0, "batch_size": 2}
SETTINGS |= {"eval_rows": len(EVALUATED), "eval_every": 4, "log_every": 1, "save_every": 0, "hang_after": 0.0}


def distil(
    subject: Any, *, device: str, directory: Path, trace: Callable[[dict[str, Any]], None], seed: int, epochs: int
) -> dict[str, Any]:
    """Distil once, and return what was trained on, evaluated and loaded, and how a changed export ends."""
    del trace
    words = _tokenizer()
    _write(directory / "teacher", words, 32, torch.bfloat16)
    _write(directory / "student", words, 16, torch.float32, tie_word_embeddings=True)
    (directory / "chats.jsonl").write_text("\n".join(map(json.dumps, conversations(seed))))
    paths = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "out": "out", "data_cache": "cache"}
    places = {name: directory / path for name, path in paths.items()}
    settings = reference_trainer.Settings(**places, **SETTINGS, device=device, seed=seed, epochs=epochs)
    offline = mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"})
    lines = reference_trainer.Lines(io.StringIO())
    with offline, observe.recording(directory / "observed"), subject.HuggingFace(settings, lines=lines) as run:
        run.prepare()
        passes: list[tuple[bool, list[int]]] = []
        run.student.model.register_forward_pre_hook(
            lambda module, args, named: passes.append((module.training, named["input_ids"].flatten().tolist())),
            with_kwargs=True,
        )
        trained = run.run()
        facts = {
            "teacher": sorted({str(each.dtype) for each in run.teacher.parameters()}),
            "trained_logits": _logits(run.student, probe(words)),
            "first_pass": _numbers(next(tokens for training, tokens in passes if training)),
        }
        passes_of = {name: [tokens for training, tokens in passes if training is flag] for name, flag in MODES.items()}
        facts |= {
            name: sorted({number for tokens in each for number in _numbers(tokens)}) for name, each in passes_of.items()
        }
        result = run.conclude(trained)
        facts["changed_export"] = _changed_export(result.student, words, directory / "changed")
    return facts


MODES = {"trained_on": True, "evaluated_on": False}


def conversations(seed: int) -> list[dict[str, Any]]:
    """Return conversations of one or two turns, each with its number in the first."""
    draw, found = random.Random(seed), []
    for number in NUMBERS:
        turns: list[dict[str, str]] = []
        for turn in range(draw.choice([1, 2])):
            question, answer = (" ".join(draw.choices(WORDS, k=draw.randint(2, 4))) for _ in range(2))
            turns.append({"role": "user", "content": question if turn else f"{number} {question}"})
            turns.append({"role": "assistant", "content": answer})
        found.append({"messages": turns})
    return found


def probe(words: Any) -> torch.Tensor:
    """Return tokens [1, T] to compare models by."""
    return torch.tensor([words(" ".join(WORDS[:10]))["input_ids"]])


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.WordLevel({word: n for n, word in enumerate(VOCABULARY)}, unk_token="<end>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")
    words.chat_template = TEMPLATE
    return words


def _write(directory: Path, words: Any, width: int, dtype: torch.dtype, **others: Any) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": 2, "initializer_range": 0.3}
    config = LlamaConfig(vocab_size=len(VOCABULARY), num_attention_heads=2, num_key_value_heads=1, **shape, **others)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(width)
        LlamaForCausalLM(config).to(dtype).save_pretrained(directory)
    words.save_pretrained(directory)


@torch.no_grad()
def _logits(student: Any, tokens: torch.Tensor) -> Any:
    modes = [(module, module.training) for module in student.modules()]
    logits = student.eval()(tokens.to(next(student.parameters()).device)).logits.tolist()
    for module, training in modes:
        module.training = training
    return logits


def _numbers(tokens: list[int]) -> list[int]:
    """Return the numbers of the conversations among these tokens."""
    return [token - FIRST_NUMBER for token in tokens if token >= FIRST_NUMBER]


def _changed_export(student: Any, words: Any, directory: Path) -> str:
    """Return the error of an export whose weights are others than those of the student; empty if it is accepted."""

    def halved(model: Causal) -> Causal:
        with torch.no_grad():
            next(model.parameters()).mul_(0.5)
        return model

    directory.mkdir()
    try:
        save_model(student, words, directory, {}, merge=halved)
    except reference_trainer.OutputError as error:
        return str(error)
    return ""
