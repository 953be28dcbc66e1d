"""Expected values of `reference_run.py::distil`: text, sequences, weights and their losses, from the files alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from falsifiers.distill_run.reference_run import SHAPE
from falsifiers.support import decoder_oracle as oracle

LENGTH = SHAPE["length"]
HEADS = {"student": 1, "teacher": 2}  # about 32 features to a head


def text_of(run: Any) -> bytes:
    path = run.result["settings"]["data"]
    return Path(path or Path(__file__).parents[2] / "reference_trainer/data/corpus/python-topics.txt").read_bytes()


def parts_of(run: Any) -> tuple[bytes, bytes]:
    """Return the training text, and the last tenth, rounded up."""
    text = text_of(run)
    cut = len(text) - -(-len(text) // 10)
    return text[:cut], text[cut:]


def sequences_of(part: bytes) -> oracle.Array:
    count = (len(part) - 1) // (LENGTH - 1)
    return np.array([list(part[k * (LENGTH - 1) :][:LENGTH]) for k in range(count)])


def weights_of(run: Any, whose: str) -> dict[str, oracle.Array]:
    if whose == "untrained":
        read = load_file(run.directory / "untrained.safetensors")
        return {name: value.double().numpy() for name, value in read.items()}
    return oracle.weights_in(run.directory / (run.result["cached"] if whose == "teacher" else "out"))


def held_back_of(run: Any, student: str, every: int = 1) -> tuple[dict[str, float], int]:
    """Sums in nats over each `every`-th held-back sequence, in float64 and from files; and over how many bytes."""
    weights, teacher = weights_of(run, student), weights_of(run, "teacher")
    tokens = sequences_of(parts_of(run)[1])[::every]
    sums = [
        oracle.losses(oracle.logits(weights, 1, part), oracle.logits(teacher, HEADS["teacher"], part), part)
        for part in oracle.chunks(tokens)
    ]
    return {
        "hard_loss": math.fsum(x for x, _ in sums),
        "kl_at_1": math.fsum(x for _, x in sums),
    }, tokens[:, 1:].size


def batches_of(run: Any) -> list[int]:
    """How many sequences each batch of an epoch has."""
    count = (len(parts_of(run)[0]) - 1) // (LENGTH - 1)
    return [min(SHAPE["batch_size"], count - start) for start in range(0, count, SHAPE["batch_size"])]
