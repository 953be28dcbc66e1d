"""On-policy distillation beside TRL's `GKDTrainer`: scored tokens a CPU second, half of the batches generated.

    OMP_NUM_THREADS=1 TRL_EXPERIMENTAL_SILENCE=1 python benchmarks/generation.py

Tiny random Llamas of transformers on the CPU, the same chats, batch size, answer length, temperature and divergence
(reverse KL). Runs are interleaved; loading and tokenising before the first step are not timed. Both decide by chance
which batches are generated, in other orders, so every round has another seed.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from falsifiers.support.causal import WORDS, word_tokenizer, write_causal
from reference_trainer import HuggingFace, Lines, Settings

STEPS, BATCH, ANSWER, SHARE = 40, 8, 32, 0.5


def chats(number: int) -> list[dict[str, Any]]:
    draw = random.Random(0)
    texts = [[" ".join(draw.choices(WORDS, k=draw.randint(8, ANSWER - 2))) for _ in range(2)] for _ in range(number)]
    roles = ("user", "assistant")
    return [
        {"messages": [{"role": role, "content": text} for role, text in zip(roles, pair, strict=True)]}
        for pair in texts
    ]


def trainer_run(place: Path, seed: int) -> tuple[int, Callable[[], int]]:
    """Return a function that trains with this repository and returns the number of scored tokens."""
    paths = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "data_cache": "cache"}
    places: dict[str, Any] = {name: place / path for name, path in paths.items()} | {"out": place / f"out{seed}"}
    settings = Settings(
        **places,
        on_policy=SHARE,
        answer_tokens=ANSWER,
        divergence="reverse_kl",
        length=128,
        batch_size=BATCH,
        epochs=1,
        max_steps=STEPS,
        lr=1e-4,
        eval_rows=1,
        log_every=STEPS,
        save_every=0,
        seed=seed,
        device="cpu",
        hang_after=0.0,
    )
    run = HuggingFace(settings, lines=Lines(io.StringIO()))
    run.__enter__()
    run.prepare()

    def train() -> int:
        return run.run().tokens

    return seed, train


def gkd_run(place: Path, seed: int) -> tuple[int, Callable[[], int]]:
    """Return a function that trains with TRL and returns the number of scored tokens."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    words = word_tokenizer()
    words.pad_token = "<end>"
    student, teacher = (AutoModelForCausalLM.from_pretrained(place / name) for name in ("student", "teacher"))
    config = GKDConfig(
        output_dir=str(place / f"gkd{seed}"),
        lmbda=SHARE,
        beta=1.0,
        temperature=1.0,
        max_new_tokens=ANSWER,
        max_length=128,
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=1e-4,
        logging_steps=STEPS,
        save_strategy="no",
        report_to=[],
        seed=seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    data = Dataset.from_list(chats(STEPS * BATCH * 2))
    trainer = GKDTrainer(model=student, teacher_model=teacher, args=config, processing_class=words, train_dataset=data)
    counted = [0]
    compute = trainer.compute_loss

    def compute_loss(model: Any, inputs: Any, **options: Any) -> Any:
        counted[0] += int((inputs["labels"][:, 1:] != -100).sum())
        return compute(model, inputs, **options)

    trainer.compute_loss = compute_loss
    random.seed(seed)

    def train() -> int:
        trainer.train()
        return counted[0]

    return seed, train


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    variants = {"reference_trainer": trainer_run, "TRL GKDTrainer": gkd_run}
    rates: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as directory:
        place, words = Path(directory), word_tokenizer()
        for name, width in (("teacher", 128), ("student", 64)):
            write_causal(place / name, words, width, torch.float32, eos_token_id=0, pad_token_id=0)
        lines = "\n".join(map(json.dumps, chats(STEPS * BATCH * 2)))
        (place / "chats.jsonl").write_text(lines, encoding="utf-8")
        for seed in range(rounds + 1):
            for name, make in variants.items():
                _, train = make(place, seed)
                begin = time.process_time()
                tokens = train()
                seconds = time.process_time() - begin
                if seed:  # the first round loads libraries
                    rates[name].append(tokens / seconds)
                    print(f"round {seed}: {name}: {tokens} tokens in {seconds:.2f} CPU s", flush=True)
    for name, of_name in rates.items():
        low, middle, high = min(of_name), statistics.median(of_name), max(of_name)
        print(f"{name}: {middle:,.0f} scored tokens a CPU second ({low:,.0f} to {high:,.0f})")
    ratio = statistics.median(rates["reference_trainer"]) / statistics.median(rates["TRL GKDTrainer"])
    print(f"ratio of the medians: {ratio:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
