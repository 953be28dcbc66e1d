"""Faulty distillation steps, tables and metrics. `original` is the replaced function."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support.faults import changed_pass, changed_student, scored_tokens


def labels_shifted_twice(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    return original(teacher, student, replace(batch, labels=batch.labels.roll(-1, 1)), **settings)


def vocabularies_unchecked(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    same = SimpleNamespace(vocab_size=teacher.vocab_size, forward=student.forward)
    return original(teacher, same, batch, **settings)


def gradient_not_divided(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    count = scored_tokens(batch)
    return original(teacher, changed_student(student, lambda gradient: gradient * count), batch, **settings)


def gradient_divided_by_positions(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    factor = scored_tokens(batch) / max(batch.labels[:, 1:].numel(), 1)
    return original(teacher, changed_student(student, lambda gradient: gradient * factor), batch, **settings)


def last_element_only(original: Any, student: Any, batch: Any) -> Any:
    def change(gradient: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(gradient[:-1]), gradient[-1:]])

    return changed_pass(original(student, batch), change)


def averaged_over_the_batch(original: Any, student: Any, batch: Any) -> Any:
    return changed_pass(original(student, batch), lambda gradient: gradient / max(len(batch.tokens), 1))


def weights_swapped(original: Any, *args: Any, ce_weight: float, kd_weight: float, **rest: Any) -> Any:
    return original(*args, ce_weight=kd_weight, kd_weight=ce_weight, **rest)


def gradient_weights_swapped(
    original: Any, teacher: Any, student: Any, batch: Any, *, ce_weight: float, kd_weight: float, **rest: Any
) -> Any:
    right = original(teacher, silent(student), batch, ce_weight=ce_weight, kd_weight=kd_weight, **rest)
    original(teacher, student, batch, ce_weight=kd_weight, kd_weight=ce_weight, **rest)
    return right


def temperature_on_one_side(
    original: Any, teacher: Any, student: Any, batch: Any, *, temperature: float, kd_weight: float, **rest: Any
) -> Any:
    scaled = SimpleNamespace(vocab_size=teacher.vocab_size, logits=lambda batch: teacher.logits(batch) / temperature)
    return original(scaled, student, batch, temperature=1.0, kd_weight=kd_weight * temperature**2, **rest)


def cross_entropy_called_kl(
    original: Any, teacher: Any, student: Any, batch: Any, *, temperature: float, kd_weight: float, **rest: Any
) -> Any:
    right = original(teacher, student, batch, temperature=temperature, kd_weight=kd_weight, **rest)
    scored = batch.labels[:, 1:].long() != -100
    log_p = (teacher.logits(batch)[:, :-1][scored.to(teacher.logits(batch).device)] / temperature).log_softmax(-1)
    entropy = -float(torch.nan_to_num(log_p.exp() * log_p).sum())
    total = right.sum + kd_weight * temperature**2 * entropy
    return replace(right, sum=total, loss=total / right.count if right.count else None)


def tau_squared_in_gradient(
    original: Any, teacher: Any, student: Any, batch: Any, *, temperature: float, kd_weight: float, **rest: Any
) -> Any:
    right = original(teacher, silent(student), batch, temperature=temperature, kd_weight=kd_weight, **rest)
    original(teacher, student, batch, temperature=temperature, kd_weight=kd_weight * temperature, **rest)
    return right


def half_precision_arithmetic(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    narrow = student.forward(batch).logits.dtype is torch.bfloat16
    rounded = changed_student(student, lambda gradient: gradient.bfloat16().to(gradient.dtype))
    return original(teacher, rounded if narrow else student, batch, **settings)


def silent(student: Any) -> Any:
    """Return the student with every gradient replaced by zeros."""
    return changed_student(student, torch.zeros_like)


def loss_zero_where_nothing_is_scored(original: Any, *models: Any, **settings: Any) -> Any:
    result = original(*models, **settings)
    return replace(result, loss=result.loss or 0.0)


def metrics_of_nothing(original: Any, *models: Any, **settings: Any) -> Any:
    result = original(*models, **settings)
    return replace(result, metrics=result.metrics or {"kl_at_T": SimpleNamespace(sum=0.0, count=0)})


def gradient_unseeded(original: Any, student: Any, batch: Any) -> Any:
    return changed_pass(
        original(student, batch), lambda gradient: gradient * (1 + torch.Generator().seed() % 1009 * 1e-4)
    )


def last_input_only(original: Any, student: Any, batch: Any) -> Any:
    student.last_batch = batch

    def backward(gradient: Tensor) -> None:
        original(student, student.last_batch).backward(gradient)

    return SimpleNamespace(logits=original(student, batch).logits, backward=backward)


@contextmanager
def left_in_eval_mode(module: nn.Module) -> Iterator[None]:
    module.eval()
    yield


def nothing_accepted(original: Any, model: str, logits: Any, tokens: Tensor, vocab_size: int) -> Any:
    return logits if logits is None else original(model, logits, tokens, vocab_size)


def vocabulary_accepted(original: Any, model: str, logits: Any, tokens: Tensor, vocab_size: int) -> Any:
    if isinstance(logits, Tensor) and logits.dim() == 3 and logits.shape[:2] == tokens.shape:
        return logits
    return original(model, logits, tokens, vocab_size)


def pass_used_twice(original: Any, self: Any, *gradients: Any) -> None:
    apply = self._apply
    original(self, *gradients)
    self._apply = apply


def pass_left_by_a_failure(original: Any, self: Any, *gradients: Any) -> None:
    apply = self._apply
    try:
        original(self, *gradients)
    except BaseException:
        self._apply = apply
        raise
