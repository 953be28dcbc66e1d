"""Ends of the tokens of an answer, beside decoding every beginning of it: `python benchmarks/alignment.py [ROUNDS]`."""

from __future__ import annotations

import random
import statistics
import sys
from types import SimpleNamespace
from typing import Any

from measuring import taken
from tokenising import draw_words, tokenizer

from reference_trainer.distillation.universal import spelled

SIZES = 500, 4000


def compare(rounds: int) -> None:
    draw = random.Random(0)
    text = " ".join(draw.choices([*draw_words(draw), "naïve", "日本語", "🙂"], k=SIZES[-1]))
    fast: Any = tokenizer([text])
    slow = SimpleNamespace(all_special_ids=fast.all_special_ids, decode=fast.decode)
    tokens = fast(text)["input_ids"]
    variants = {
        "by windows": lambda size: spelled(fast, tokens[:size]),
        "every beginning": lambda size: spelled(slow, tokens[:size]),
    }
    for size in SIZES:
        times = {
            name: statistics.median(one.cpu for one in of_name)
            for name, of_name in taken(size, variants, rounds).items()
        }
        ratio = times["by windows"] / times["every beginning"]
        milliseconds = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in times.items())
        print(f"{size} tokens: {milliseconds}, ratio {ratio:.3f}", flush=True)


if __name__ == "__main__":
    compare(*map(int, sys.argv[1:] or ["5"]))
