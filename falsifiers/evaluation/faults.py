"""Faults of the evaluation, as wrong versions of `evaluate` and of what it is given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

EVERYTHING = 2**62
A_BYTE_MORE = 2**16 + 1


def _part(sequences: Any, first: int, end: int) -> Any:
    """Return the sequences with numbers from `first` to `end`, which share a byte with their neighbours."""
    step = sequences.length - 1
    return replace(sequences, bytes_N=sequences.bytes_N[first * step : end * step + 1])


def mean_of_batch_means(original: Any, teacher: Any, student: Any, sequences: Any) -> Any:
    """Give every batch the weight of a full one."""
    size, metrics = sequences.batch_size, dict[str, Any]()
    for start in range(0, len(sequences), size):
        part = _part(sequences, start, min(start + size, len(sequences)))
        for name, term in original(teacher, student, part).items():
            before = metrics.get(name, SimpleNamespace(sum=0.0, count=0))
            weighted = term.sum / len(part) * size
            metrics[name] = SimpleNamespace(sum=before.sum + weighted, count=before.count + term.count)
    return metrics


def last_evaluation_batch_dropped(original: Any, teacher: Any, student: Any, sequences: Any) -> Any:
    """Omit a smaller last batch, unless it is the only one."""
    full = len(sequences) // sequences.batch_size * sequences.batch_size
    return original(teacher, student, _part(sequences, 0, full or len(sequences)))


def student_left_in_eval_mode(original: Any, teacher: Any, student: Any, sequences: Any) -> Any:
    """Leave the student in eval mode after an evaluation."""
    metrics = original(teacher, student, sequences)
    student.eval()
    return metrics


def student_in_eval_mode_after_an_exception(original: Any, teacher: Any, student: Any, sequences: Any) -> Any:
    """Restore training flags only if no exception is raised."""
    try:
        return original(teacher, student, sequences)
    except Exception:
        student.eval()
        raise


def nothing_scored_is_zero(original: Any, teacher: Any, student: Any, sequences: Any) -> Any:
    """Report a loss over nothing as a perfect 0."""
    nothing = SimpleNamespace(sum=0.0, count=0)
    return {"cross_entropy": nothing, "kl": nothing, **original(teacher, student, sequences)}


class _WithGraph(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: Any) -> Any:
        with torch.enable_grad():
            return self.module(tokens)


def graph_built_in_evaluation(original: Any, teacher: Any, student: Any, sequences: Any) -> Any:
    """Save tensors for a backward pass in the student's forward pass."""
    return original(teacher, _WithGraph(student), sequences)


def batch_left_on_the_cpu(original: Any, sequences: Any, order: Any, position: int) -> Any:
    """Return every batch on the CPU, wherever the sequences should be."""
    return original(replace(sequences, device=torch.device("cpu")), order, position)
