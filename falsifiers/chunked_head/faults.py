"""Faulty losses of hidden states and output layers. `original` is the replaced function."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support.cases import IGNORED


def last_chunk_only(original: Any, student: Any, teacher: Any, labels: Tensor, *args: Any, **settings: Any) -> Any:
    rows, (of_hidden, _, of_bias) = original(student, teacher, labels, *args, **settings)
    places = (labels.flatten() != IGNORED).nonzero()[:-1, 0]
    last = labels.flatten().index_fill(0, places, IGNORED).view_as(labels)
    _, (_, of_weight, _) = original(student, teacher, last, *args, **settings)
    return rows, (of_hidden, of_weight, of_bias)


def divided_by_chunk(original: Any, student: Any, teacher: Any, labels: Tensor, *args: Any, **settings: Any) -> Any:
    rows, gradients = original(student, teacher, labels, *args, **settings)
    count = max(int((labels != IGNORED).sum()), 1)
    return rows, tuple(None if gradient is None else gradient / count for gradient in gradients)


def other_labels(original: Any, student: Any, teacher: Any, labels: Tensor, *args: Any, **settings: Any) -> Any:
    places, flat = (labels.flatten() != IGNORED).nonzero()[:, 0], labels.flatten().clone()
    flat[places] = flat[places].roll(1)
    return original(student, teacher, flat.view_as(labels), *args, **settings)


def rows_shifted(original: Any, *arguments: Any, **settings: Any) -> Any:
    rows, (hidden, *weights) = original(*arguments, **settings)
    return rows, (None if hidden is None else hidden.roll(1, 0), *weights)


def embedding_use_lost(original: Any, hidden: Tensor, weight: Tensor, bias: Any, consume: Any) -> Tensor:
    def consumed(head: Any) -> Any:
        gradients = consume(head)
        of_head = gradients[1]
        if of_head is not None and weight.is_leaf:
            before = torch.zeros_like(of_head) if weight.grad is None else weight.grad.clone()
            weight.register_post_accumulate_grad_hook(lambda leaf: leaf.grad.copy_(before + of_head))
        return gradients

    return original(hidden, weight, bias, consumed)


def beside_the_hooks(original: Any, hidden: Tensor, weight: Tensor, bias: Any, consume: Any) -> Tensor:
    def consumed(head: Any) -> Any:
        of_hidden, of_weight, of_bias = consume(replace(head, needed=(head.needed[0], True, head.needed[2])))
        of_weight = of_weight.to(weight.dtype)
        weight.grad = of_weight if weight.grad is None else weight.grad + of_weight
        return of_hidden, None, of_bias

    return original(hidden, weight.detach(), bias, consumed)


def cap_without_derivative(original: Any, loss: Any, select: bool) -> Tensor:
    loss.cap = None
    return original(loss, select)


def fused_cap_without_derivative(original: Any, *arguments: Any) -> Tensor:
    return original(*arguments[:-1], None)


def fused_rows_unmasked(original: Any, student: Any, teacher: Any, labels: Any, scored: Any, *settings: Any) -> Tensor:
    return original(student, teacher, labels, torch.ones_like(scored), *settings)


def no_head(original: Any, teacher: Any, batch: Any, *, hidden_states: bool = False) -> None:
    """Let the teacher form its logits."""


def evaluated_at_once(original: Any, teacher: Any, student: Any, *args: Any) -> Any:
    plain = [SimpleNamespace(vocab_size=model.vocab_size, logits=model.logits) for model in (teacher, student)]
    return original(*plain, *args)


def compared_with_own_logits(original: Any, layer: Any, batch: Any, logits: Any) -> str:
    with layer.record_heads() as heads:
        with suppress(ValueError):  # there are no logits
            logits(batch)
    product = heads[0].hidden_PW @ heads[0].weight_VW.T
    return "" if torch.allclose(product, logits(batch).flatten(0, 1), rtol=1e-4, atol=1e-4) else "the product differs"


def any_layer(original: Any, layer: Any, batch: Any, logits: Any) -> str:
    return "" if isinstance(layer.find(), nn.Linear) else original(layer, batch, logits)


def unchecked(original: Any, layer: Any, batch: Any, logits: Any) -> str:
    return ""


UNFINISHED: list[Any] = []


@contextmanager
def kept_after_errors(original: Any, self: Any, **named: bool) -> Iterator[None]:
    context = original(self, **named)
    UNFINISHED.append(context)  # the end of a collected generator would free the weights
    context.__enter__()
    yield
    context.__exit__(None, None, None)


@contextmanager
def last_micro_batch_only(original: Any, self: Any, *, last: bool) -> Iterator[None]:
    with original(self, last=last):
        yield
        for parameter in () if last else (p for part in self._parts for p in part.parameters()):
            parameter.grad = None
