"""Small saved models and checkpoints, and what an evaluation of them must give."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer import Settings
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.export import save_decoder
from reference_trainer.storage.snapshot import snapshot

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
    """Return sum and count of each metric, of float64 log-probabilities, one sequence after the other."""
    sums = {"hard_loss": 0.0, "token_accuracy": 0.0} | (
        {} if teacher is None else {"kl_at_1": 0.0, "agreement": 0.0, "teacher_loss": 0.0}
    )
    starts = range(0, len(part) - length + 1, length - 1)
    for start in starts:
        tokens_1T = torch.tensor([list(part[start : start + length])])
        labels = tokens_1T[0, 1:]
        s = _log_probabilities(student, tokens_1T)
        sums["hard_loss"] -= float(s[range(length - 1), labels].sum())
        sums["token_accuracy"] += float((s.argmax(-1) == labels).sum())
        if teacher is not None:
            t = _log_probabilities(teacher, tokens_1T)
            sums["teacher_loss"] -= float(t[range(length - 1), labels].sum())
            sums["kl_at_1"] += float((t.exp() * (t - s)).sum())
            sums["agreement"] += float((t.argmax(-1) == s.argmax(-1)).sum())
    return {name: (total, len(starts) * (length - 1)) for name, total in sums.items()}


def _log_probabilities(model: Decoder, tokens_1T: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens_1T)[0, :-1].double().log_softmax(-1)
