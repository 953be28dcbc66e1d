"""A short distillation on real English text, in a plain loop as a user of the trainer would write it.

Held-back losses and digests are computed here, losses in float64, not by the subject.

Shape letters: B sequence, T position, C context, E embedding, V = 256 byte values.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

IGNORED = -100
SETTINGS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}
HELD_BACK = 0.1


class ByteModel(nn.Module):
    """Map tokens [B, T] to logits [B, T, 256]: each next byte from the last C bytes, with one hidden layer."""

    def __init__(self, embedding: nn.Embedding, *, context: int, hidden: int) -> None:
        super().__init__()
        self.embedding, self.context = embedding, context
        self.mix = nn.Linear(context * embedding.embedding_dim, hidden)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(hidden, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        padded = nn.functional.pad(self.embedding(tokens), (0, 0, self.context - 1, 0))
        window = padded.unfold(1, self.context, 1).flatten(2)
        logits: Tensor = self.head(self.dropout(nn.functional.gelu(self.mix(window))))
        return logits


@dataclass(frozen=True, slots=True)
class Text:
    """Training bytes and held-back bytes, int64 [N] on one device."""

    learned: Tensor
    held_back: Tensor

    def batches(self, seed: int, *, rows: int = 12, length: int = 48) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield tokens [B, T] and aligned labels whose first quarter, the prompt, is unscored."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(self.learned) - length, (rows,), generator=generator)
            tokens = torch.stack([self.learned[s : s + length] for s in starts.tolist()])
            yield tokens, _prompt_unscored(tokens)

    def held_back_batch(self, *, rows: int = 64, length: int = 64) -> tuple[Tensor, Tensor]:
        step = (len(self.held_back) - length) // rows
        tokens = torch.stack([self.held_back[k * step : k * step + length] for k in range(rows)])
        return tokens, _prompt_unscored(tokens)


def distill_text(
    subject: Any,
    *,
    device: str,
    directory: Path,
    trace: Callable[[dict[str, Any]], None],
    steps: int,
    teacher_steps: int,
    repeated_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Train a teacher, distil it into a smaller student that shares its embedding, and return measurements.

    The first `repeated_steps` are repeated with the same seed and with the next one.
    """
    del directory  # this run writes no files
    text = _text(device)
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        teacher = _fitted_teacher(text, device, seed, teacher_steps)
        before = _digest(teacher)
        answers = _answers(subject, teacher, text)
        result, first = _distilled(subject, teacher, text, device, seed, steps, repeated_steps, trace)
        result["teacher"] = {
            "digest_before": before,
            "digest_after": _digest(teacher),
            "answers_before": answers,
            "answers_after": _answers(subject, teacher, text),
            "with_gradient": [name for name, p in teacher.named_parameters() if p.grad is not None],
        }
        result["weights_after_repeated_steps"] = {"first": first}
        for name, other in (("again", seed), ("other_seed", seed + 1)):
            run = _distilled(subject, teacher, text, device, other, repeated_steps, repeated_steps, lambda event: None)
            result["weights_after_repeated_steps"][name] = run[1]
    return result


def _distilled(
    subject: Any,
    teacher_module: ByteModel,
    text: Text,
    device: str,
    seed: int,
    steps: int,
    repeated_steps: int,
    trace: Callable[[dict[str, Any]], None],
) -> tuple[dict[str, Any], str]:
    """Return the measurements of a run, and the digest of its weights after `repeated_steps`."""
    torch.manual_seed(seed)
    module = ByteModel(teacher_module.embedding, context=6, hidden=48).to(device)
    teacher, student = subject.ModuleTeacher(teacher_module, 256), subject.ModuleStudent(module, 256)
    teacher_module.train()  # the subject has to set eval mode itself
    own = {name: p for name, p in module.named_parameters() if not name.startswith("embedding")}
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    start = {name: p.detach().clone() for name, p in own.items()}
    held_back_before, digest = _held_back(teacher_module, module, text), ""
    for step, (tokens, labels) in zip(range(1, steps + 1), text.batches(seed), strict=False):
        optimizer.zero_grad()
        state = torch.random.get_rng_state()
        result = subject.kd_step(teacher, student, subject.Batch(tokens=tokens, labels=labels), **SETTINGS)
        event = {"event": "step", "step": step, "loss": result.loss, "sum": result.sum, "count": result.count}
        event["scored"] = int((labels[:, 1:] != IGNORED).sum())
        if step in (1, steps) and device == "cpu":
            event["expected_loss"] = _replayed(teacher_module, module, tokens, labels, state)
        trace(event)
        optimizer.step()
        digest = _digest(module) if step == repeated_steps else digest
    measured = {
        "steps": steps,
        "held_back": {"before": held_back_before, "after": _held_back(teacher_module, module, text)},
        "moved": {
            name: {"change": (p.detach() - start[name]).norm().item(), "rounding": start[name].norm().item() * 2.0**-24}
            for name, p in own.items()
        },
    }
    return measured, digest


def _fitted_teacher(text: Text, device: str, seed: int, steps: int) -> ByteModel:
    torch.manual_seed(seed)
    teacher = ByteModel(nn.Embedding(256, 32), context=8, hidden=160).to(device)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _, (tokens, _) in zip(range(steps), text.batches(seed + 1000), strict=False):
        optimizer.zero_grad()
        nats = nn.functional.cross_entropy(teacher(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(nats)
        optimizer.step()
    return teacher


def _text(device: str) -> Text:
    data = importlib.import_module("reference_trainer.data.text").packaged_text()
    tokens = torch.tensor(list(data), dtype=torch.int64, device=device)
    cut = int(len(tokens) * (1 - HELD_BACK))
    return Text(learned=tokens[:cut], held_back=tokens[cut:])


def _prompt_unscored(tokens: Tensor) -> Tensor:
    labels = tokens.clone()
    labels[:, : tokens.shape[1] // 4] = IGNORED
    return labels


def _evaluated(module: nn.Module, tokens: Tensor) -> Tensor:
    """Return float64 logits [B, T, 256] in eval mode, computed without the subject."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        with torch.no_grad():
            logits: Tensor = module(tokens).double()
        return logits
    finally:
        for part, training in modes:
            part.training = training


def _held_back(teacher: nn.Module, student: nn.Module, text: Text) -> dict[str, float]:
    """Return cross-entropy, KL at the run's temperature and their mix on held-back text, in nats per scored byte."""
    tokens, labels = text.held_back_batch()
    return _losses(_evaluated(student, tokens), _evaluated(teacher, tokens), labels)


def _replayed(teacher: nn.Module, student: nn.Module, tokens: Tensor, labels: Tensor, state: Tensor) -> float:
    """Return the loss the step must report, with the same dropout; leave the random state unchanged."""
    now = torch.random.get_rng_state()
    torch.random.set_rng_state(state)
    with torch.no_grad():
        student_logits = student(tokens).double()
    torch.random.set_rng_state(now)
    return _losses(student_logits, _evaluated(teacher, tokens), labels)["mix"]


def _losses(student: Tensor, teacher: Tensor, labels: Tensor) -> dict[str, float]:
    tau = SETTINGS["temperature"]
    log_q, log_p = ((x[:, :-1] / tau).log_softmax(-1) for x in (student, teacher))
    keep, targets = labels[:, 1:] != IGNORED, labels[:, 1:].clamp_min(0)
    kl = float(((log_p.exp() * (log_p - log_q)).sum(-1))[keep].mean())
    ce = float(-student[:, :-1].log_softmax(-1).gather(-1, targets[..., None])[..., 0][keep].mean())
    return {"cross_entropy": ce, "kl": kl, "mix": SETTINGS["ce_weight"] * ce + SETTINGS["kd_weight"] * tau**2 * kl}


def _answers(subject: Any, module: nn.Module, text: Text) -> str:
    tokens, labels = text.held_back_batch(rows=4)
    logits = subject.ModuleTeacher(module, 256).logits(subject.Batch(tokens=tokens, labels=labels))
    return _sha([logits])


def _digest(module: nn.Module) -> str:
    return _sha(list(module.state_dict().values()))


def _sha(tensors: list[Tensor]) -> str:
    return hashlib.sha256(b"".join(each.detach().cpu().numpy().tobytes() for each in tensors)).hexdigest()
