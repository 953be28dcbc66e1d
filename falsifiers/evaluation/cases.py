"""Small saved models, a student and a teacher that are tables of logits, and their evaluation by hand."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles, runs
from falsifiers.support.cases import LOGITS, tensors
from reference_trainer import MetricSum, Settings, Weights
from reference_trainer.data import text as data
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.pipeline.parts import Run
from reference_trainer.storage.checkpoints import Manifest, save_checkpoint
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
        self.fails_at, self.calls = fails_at, 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the student fails on purpose")
        logits: Tensor = self.parts(self.embedding(tokens))
        return logits


def sequences_of(text: Tensor, length: int, batch_size: int, device: str = "cpu") -> Any:
    """Return the trainer's sequences of a text."""
    return runs.sequences_of(data, text.to(torch.uint8), length, batch_size, device)


def evaluated(subject: Any, teacher: Any, student: nn.Module, *sequences: Any, tau: float = 2.0, **options: Any) -> Any:
    """Return the metrics of the subject's `evaluate` at a temperature."""
    weights = Weights(temperature=tau, ce_weight=0.5, kd_weight=0.0)
    return subject.evaluate(teacher, ModuleStudent(student, VOCABULARY), sequences_of(*sequences), weights, **options)


def assert_sums(case: str, seen: Mapping[str, MetricSum], expected: Mapping[str, float], count: int) -> None:
    """Assert that metrics have these sums over `count` tokens.

    Rounding: 70 tokens, logits up to 20 over a temperature of at least 1/4, and 64 operations are 1e-10 nats.
    """
    assert seen.keys() == expected.keys(), f"{case}: the metrics are {sorted(seen)}; expected {sorted(expected)}"
    for name, total in expected.items():
        metric = seen[name]
        assert metric.count == count, f"{case}: {name} counts {metric.count} tokens; expected {count}"
        kinds = [type(metric.sum).__name__, type(metric.count).__name__]
        assert kinds == ["float", "int"], f"{case}: sum and count of {name} are of the types {kinds}"
        oracles.assert_close(f"{case}: {name}", metric.sum, total, 1e-10 + 1e-12 * abs(total), "the oracle's sum")


TOKENS = 40
BYTES = st.binary(min_size=41, max_size=90).map(lambda text: bytes(byte % TOKENS for byte in text))


def decoder(seed: int, tokens: int = TOKENS) -> Decoder:
    """Return a small model with random weights, large enough that models of other seeds predict other tokens."""
    module = new_decoder(DecoderConfig(vocab_size=tokens, layers=1, width=16, heads=1), seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3.0)
    return module


def model(directory: Path, seed: int, tokens: int = TOKENS, *, broken: bool = False) -> Path:
    """Return the directory of a saved model; broken: its logits are not finite, although its weights are."""
    path, module = directory / f"model-{seed}", decoder(seed, tokens)
    path.mkdir()
    if broken:
        with torch.no_grad():
            module.head.weight.sign_().mul_(3e38)  # products of finite weights that are not
    save_decoder(module, path, {})
    return path


def checkpoint(directory: Path, seed: int) -> Path:
    """Return the directory of a checkpoint of the same model."""
    state = {"student": asdict(decoder(seed).config)}
    content = Manifest(run_id="student", step=1, conditions={}, state=state)
    return save_checkpoint(directory, content, snapshot({"student": decoder(seed)}, None).tensors)


def chosen(directory: Path, text: bytes = bytes(range(TOKENS)) * 2, **changes: Any) -> Settings:
    """Return settings for an evaluation of this text."""
    (directory / "text").write_bytes(text)
    return Settings(**{"data": directory / "text", "length": 3, "batch_size": 4, "device": "cpu", **changes})


def rows_of(text: Tensor, length: int) -> Tensor:
    """Return the sequences [B, T] of a text, which share a token with their neighbours; less than one is left out."""
    return text.unfold(0, length, length - 1) if len(text) >= length else text.new_zeros(0, length)


def sums_of(
    student: nn.Module, teacher: nn.Module | None, rows_BT: Tensor, temperature: float | None = None
) -> dict[str, float]:
    """Return the sum of each metric over the tokens after the first of each row, of float64 log-probabilities.

    temperature: with one, the sums that a run reports of its teacher are there too.
    """

    with torch.no_grad():
        models = [student] if teacher is None else [student, teacher]
        logits = [model(rows_BT)[:, :-1].double().flatten(0, 1) for model in models]
    labels, log_p = rows_BT[:, 1:].flatten(), [x.log_softmax(-1) for x in logits]
    first = [x.argmax(-1) for x in logits]  # the first of equal ones; log-probabilities round some to equal ones
    places = range(len(labels))
    sums = {"hard_loss": -log_p[0][places, labels].sum(), "token_accuracy": (first[0] == labels).sum()}
    if teacher is not None:
        s, t = log_p
        sums |= {"teacher_loss": -t[places, labels].sum(), "kl_at_1": (t.exp() * (t - s)).sum()}
        sums |= {"agreement": (first[0] == first[1]).sum()}
        if temperature is not None:
            soft_s, soft_t = ((x / temperature).log_softmax(-1) for x in logits)
            kl = (soft_t.exp() * (soft_t - soft_s)).sum()
            sums |= {"kl_at_T": kl, "soft_loss": temperature**2 * kl, "teacher_entropy": -(t.exp() * t).sum()}
    return {name: float(total) for name, total in sums.items()}


class Tokenized(Run):
    """The packaged evaluation with digests of a tokenizer and a chat template, as Hugging Face models have them."""

    def __init__(self, settings: Any, *, tokenizer: str, chat_template: str, **options: Any) -> None:
        super().__init__(settings, **options)
        self._tokenized = {"tokenizer_sha256": tokenizer, "chat_template_sha256": chat_template}

    def make_held_back(self, *, whole: bool) -> None:
        """Make the rows, and note the digests."""
        super().make_held_back(whole=whole)
        self.digests.update(self._tokenized)


class Scaled(Tokenized):
    """An own evaluation, whose numbers depend on an argument of the class."""

    def __init__(self, settings: Any, *, scale: float, **options: Any) -> None:
        super().__init__(settings, tokenizer="a", chat_template="a", **options)
        self._scale = scale

    def evaluate(self) -> dict[str, MetricSum]:
        """Return the packaged sums, multiplied by the argument."""
        return {name: MetricSum(value.sum * self._scale, value.count) for name, value in super().evaluate().items()}
