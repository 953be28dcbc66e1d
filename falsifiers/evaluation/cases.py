"""Small saved models, a student and a teacher that are tables of logits, and their evaluation by hand."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles, texts
from falsifiers.support.cases import KdCase
from falsifiers.support.strategies import LOGITS, tensors
from reference_trainer import Settings
from reference_trainer.data import text as data
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.export import save_decoder
from reference_trainer.storage.snapshot import snapshot

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
    return texts.sequences_of(data, text.to(torch.uint8), length, batch_size, device)


def learner(module: nn.Module) -> Any:
    """Return the trainer's student of a module."""
    return ModuleStudent(module, VOCABULARY)


def weights_at(temperature: float = 2.0) -> Any:
    """Return the trainer's objective at a temperature."""
    return Weights(temperature=temperature, ce_weight=0.5, kd_weight=0.0)


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


TOKENS = 40
BYTES = st.binary(min_size=41, max_size=90).map(lambda text: bytes(byte % TOKENS for byte in text))
ROUNDING = 1e-5
"""Nats a byte, of logits in float32."""


def decoder(seed: int, tokens: int = TOKENS) -> Decoder:
    """Return a small model; with random weights of a size that makes its predictions differ from those of others."""
    made = new_decoder(DecoderConfig(vocab_size=tokens, layers=1, width=16, heads=1), seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3.0)
    return made


def model(directory: Path, seed: int, tokens: int = TOKENS, *, broken: bool = False) -> Path:
    """Return the directory of a saved model; broken: its logits are not finite, although its weights are."""
    path, made = directory / f"model-{seed}", decoder(seed, tokens)
    path.mkdir()
    if broken:
        with torch.no_grad():
            made.head.weight.sign_().mul_(3e38)  # products of finite weights that are not
    save_decoder(made, path, {})
    return path


def checkpoint(directory: Path, seed: int) -> Path:
    """Return the directory of a checkpoint of the same model."""
    described = {"student": asdict(decoder(seed).config)}
    content = Manifest(run_id="student", step=1, conditions={}, state=described)
    tensors = snapshot({"student": decoder(seed)}, None).tensors
    return save_checkpoint(directory, content, tensors)


def chosen(directory: Path, text: bytes, **others: Any) -> Settings:
    """Return settings for an evaluation of this text."""
    (directory / "text").write_bytes(text)
    return Settings(**{"data": directory / "text", "length": 3, "batch_size": 4, "device": "cpu", **others})


def expected(part: bytes, length: int, student: Decoder, teacher: Decoder | None) -> dict[str, tuple[float, int]]:
    """Return sum and count of each metric over the sequences of a text, which share a byte."""
    starts = range(0, len(part) - length + 1, length - 1)
    rows_BT = torch.tensor([list(part[start : start + length]) for start in starts])
    sums = sums_of(student, teacher, rows_BT)
    return {name: (total, len(starts) * (length - 1)) for name, total in sums.items()}


def sums_of(student: nn.Module, teacher: nn.Module | None, rows_BT: Tensor) -> dict[str, float]:
    """Return the sum of each metric over the tokens after the first of each row, of float64 log-probabilities."""

    def log_p(model: nn.Module) -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(rows_BT)[:, :-1].double()
        return logits.log_softmax(-1).flatten(0, 1)

    labels, s = rows_BT[:, 1:].flatten(), log_p(student)
    places = range(len(labels))
    sums = {"hard_loss": -s[places, labels].sum(), "token_accuracy": (s.argmax(-1) == labels).sum()}
    if teacher is not None:
        t = log_p(teacher)
        sums |= {"teacher_loss": -t[places, labels].sum(), "kl_at_1": (t.exp() * (t - s)).sum()}
        sums |= {"agreement": (t.argmax(-1) == s.argmax(-1)).sum()}
    return {name: float(total) for name, total in sums.items()}
