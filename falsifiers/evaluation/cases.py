"""A student and a teacher that are tables of logits, and their evaluation by hand."""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles, texts
from falsifiers.support.cases import KdCase
from falsifiers.support.strategies import LOGITS, tensors

BATCH_SIZES = (1, 3, 7, 16)
VOCABULARY = 4
TABLE = tensors((VOCABULARY, VOCABULARY), LOGITS, torch.float64)
TEXTS = st.binary(min_size=2, max_size=70).map(lambda content: torch.tensor([b % VOCABULARY for b in content]))


class Teacher:
    """A table of logits on a device, with the interface of a teacher."""

    def __init__(self, table: Tensor, device: str = "cpu") -> None:
        self.table, self.vocab_size = table.to(device), VOCABULARY

    def logits(self, batch: Any) -> Tensor:
        return self.table[batch.tokens.to(self.table.device)]


class Student(nn.Module):
    """A table with dropout, which evaluation has to disable, and a forward pass that may raise."""

    def __init__(self, table: Tensor, device: str = "cpu", fails_at: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, VOCABULARY, _weight=table.clone().to(device))
        self.parts = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
        self.fails_at, self.calls, self.rows = fails_at, 0, 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        self.rows += len(tokens)
        if self.calls == self.fails_at:
            raise RuntimeError("the student fails on purpose")
        logits: Tensor = self.parts(self.embedding(tokens))
        return logits


def sequences_of(text: Tensor, length: int, batch_size: int, device: str = "cpu") -> Any:
    """Return the trainer's sequences of a text."""
    data = importlib.import_module("reference_trainer.data.text")
    return texts.sequences_of(data, text.to(torch.uint8), length, batch_size, device)


def learner(module: nn.Module) -> Any:
    """Return the trainer's student of a module."""
    return importlib.import_module("reference_trainer.distillation.providers").ModuleStudent(module, VOCABULARY)


def weights_at(temperature: float = 2.0) -> Any:
    """Return the trainer's objective at a temperature."""
    objective = importlib.import_module("reference_trainer.distillation.objective")
    return objective.Weights(temperature=temperature, ce_weight=0.5, kd_weight=0.0)


def cases_of(
    student: Tensor, teacher: Tensor, text: Tensor, length: int, temperature: float = 1.0
) -> dict[str, KdCase]:
    """Return the expected case of each metric, with every sequence in one batch; its loss is the metric's sum."""
    count = (len(text) - 1) // (length - 1)
    rows = torch.stack([text[k * (length - 1) :][:length] for k in range(count)])
    tokens = rows[:, :-1]
    return {
        name: KdCase(student[tokens], teacher[tokens], rows[:, 1:], *settings)
        for name, settings in {
            "hard_loss": (1.0, 1.0, 0.0),
            "kl_at_1": (1.0, 0.0, 1.0),
            "soft_loss": (temperature, 0.0, 1.0),
            "kl_at_T": (temperature, 0.0, temperature**-2),
        }.items()
    } | {"teacher_loss": KdCase(teacher[tokens], teacher[tokens], rows[:, 1:], 1.0, 1.0, 0.0)}


def entropy_and_shares(student: Tensor, teacher: Tensor, text: Tensor, length: int) -> dict[str, float]:
    """Return the teacher's entropy in nats, and the tokens whose first most probable successor is right, summed.

    Right is that of the teacher, or the token that follows.
    """
    count = (len(text) - 1) // (length - 1) * (length - 1)
    follow = text[1 : count + 1].tolist()
    pairs = [(student[token].tolist(), teacher[token].tolist()) for token in text[:count].tolist()]
    logs = [(oracles.log_softmax(taught)) for _, taught in pairs]
    return {
        "teacher_entropy": -math.fsum(math.exp(x) * x for log_p in logs for x in log_p if x > -math.inf),
        "token_accuracy": float(sum(one.index(max(one)) == y for (one, _), y in zip(pairs, follow, strict=True))),
        "agreement": float(sum(one.index(max(one)) == two.index(max(two)) for one, two in pairs)),
    }


def assert_is_the_oracles(what: str, seen: Any, case: KdCase) -> None:
    """Assert that a metric has the sum and the count of its case, within the rounding of the sum."""
    expected = case.labels.numel()
    assert seen.count == expected, f"{what} counts {seen.count} tokens; expected {expected}"
    kinds = [type(seen.sum).__name__, type(seen.count).__name__]
    assert kinds == ["float", "int"], f"{what}: sum and count are of the types {kinds}; expected float and int"
    oracles.assert_close(f"{what} in nats", seen.sum, case.oracle_nats(), case.allowed_nats(), "the oracle's sum")
