"""Faulty teachers, students and tables. `original` is the replaced function, method or property."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support.faults import changed_pass


def buffer_replaced(original: Any, student: Any, module: nn.Module, vocab_size: int) -> None:
    """Make a student whose gradients are new tensors, not added in place."""
    original(student, module, vocab_size)

    def forward(batch: Any) -> Any:
        done = type(student).forward(student, batch)

        def backward(gradient: Tensor) -> None:
            for parameter in module.parameters():
                parameter.grad = None if parameter.grad is None else parameter.grad.clone()
            done.backward(gradient)

        return SimpleNamespace(logits=done.logits, backward=backward)

    student.forward = forward


def last_input_only(original: Any, student: Any, batch: Any) -> Any:
    """Return a pass whose gradient goes to the student's last input."""
    student.last_batch = batch

    def backward(gradient: Tensor) -> None:
        original(student, student.last_batch).backward(gradient)

    return SimpleNamespace(logits=original(student, batch).logits, backward=backward)


def pass_reused(original: Any, student: Any, batch: Any) -> Any:
    """Return a pass that takes any number of gradients."""
    done = original(student, batch)
    return SimpleNamespace(logits=done.logits, backward=lambda gradient: original(student, batch).backward(gradient))


def gradient_broadcast(original: Any, student: Any, batch: Any) -> Any:
    """Return a pass that broadcasts a gradient of another shape."""
    done = original(student, batch)

    def broadcast(gradient: Any) -> Any:
        try:
            return torch.broadcast_to(gradient, done.logits.shape)
        except (RuntimeError, TypeError):
            return gradient

    return changed_pass(done, broadcast)


def consumed_too_late(original: Any, student: Any, batch: Any) -> Any:
    """Return a pass that is consumed only after its gradient was applied without an exception."""
    passes = [original(student, batch)]

    def backward(gradient: Tensor) -> None:
        try:
            passes[-1].backward(gradient)
        except ArithmeticError:
            passes.append(original(student, batch))
            raise

    return SimpleNamespace(logits=passes[0].logits, backward=backward)


class Hidden(nn.Module):
    """A module that hides the parameters of another, so that its device is taken to be the CPU."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = [inner]

    def forward(self, tokens: Tensor) -> Any:
        return self.inner[0](tokens)


def device_unknown(original: Any, model: Any, module: nn.Module, vocab_size: int) -> None:
    """Make a model whose tokens stay on the CPU."""
    original(model, Hidden(module), vocab_size)


def table_widened(original: Any, student: Any) -> Tensor:
    """Return the table in float32."""
    table: Tensor = original(student)
    return table.float()


def logits_shared(original: Any, teacher: Any, batch: Any) -> Any:
    """Return the logits of the first call again."""
    return vars(teacher).setdefault("first_logits", original(teacher, batch))


@contextmanager
def left_in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Set every submodule to eval mode, and restore nothing."""
    module.eval()
    yield


@contextmanager
def restored_without_an_exception(module: nn.Module) -> Iterator[None]:
    """Set every submodule to eval mode; restore the flags unless the forward raises."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    yield
    for part, training in before:
        part.training = training


@contextmanager
def restored_recursively(module: nn.Module) -> Iterator[None]:
    """Set every submodule to eval mode; restore the flags by `train`, which changes submodules too."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.train(training)


def old_gradients_kept(original: Any, teacher: Any, module: nn.Module, vocab_size: int) -> None:
    """Make a teacher whose parameters keep the gradients from before, also after a forward."""
    before = [(parameter, parameter.grad) for parameter in module.parameters()]
    original(teacher, module, vocab_size)

    def logits(batch: Any) -> Any:
        answer = type(teacher).logits(teacher, batch)
        for parameter, gradient in before:
            parameter.grad = gradient
        return answer

    teacher.logits = logits


def in_inference_mode(original: Any, teacher: Any, batch: Any) -> Any:
    """Run the teacher's forward in inference mode."""
    with torch.inference_mode():
        return original(teacher, batch)


def nothing_accepted(original: Any, model: str, logits: Any, tokens: Tensor, vocab_size: int) -> Any:
    """Accept None in the place of logits."""
    return logits if logits is None else original(model, logits, tokens, vocab_size)


def vocabulary_accepted(original: Any, model: str, logits: Any, tokens: Tensor, vocab_size: int) -> Any:
    """Accept logits over another vocabulary than `vocab_size`."""
    if isinstance(logits, Tensor) and logits.dim() == 3 and logits.shape[:2] == tokens.shape:
        return logits
    return original(model, logits, tokens, vocab_size)


def states_of_the_module(original: Any, teacher: Any, batch: Any) -> Any:
    """Return the hidden states as the module returned them."""
    seen: list[Any] = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, given, output: seen.append(output))
    try:
        logits = original(teacher, batch).logits
    finally:
        hook.remove()
    return SimpleNamespace(logits=logits, hidden_states=seen[-1].hidden_states)


def gradients_of_states_dropped(original: Any, student: Any, batch: Any) -> Any:
    """Return a pass that applies the gradient of its logits alone."""
    done = original(student, batch)
    return SimpleNamespace(
        logits=done.logits,
        hidden_states=done.hidden_states,
        backward=lambda gradient, hidden=(): done.backward(gradient),
    )
