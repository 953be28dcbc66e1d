"""Teachers and students for `kd_step`: tables of logits, and any `nn.Module`.

Shape letters: B batch, T position, V vocabulary, K token ids that a table knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from reference_trainer.errors import PassConsumedError, ProviderError, SettingError, ShapeError
from reference_trainer.protocols import Batch, Student, StudentPass, Teacher, checked_logits
from reference_trainer.step import MetricSum, StepResult, kd_step

__all__ = [
    "Batch",
    "FixtureStudent",
    "FixtureTeacher",
    "MetricSum",
    "ModuleStudent",
    "ModuleTeacher",
    "StepResult",
    "Student",
    "StudentPass",
    "Teacher",
    "evaluating",
    "kd_step",
]


class FixtureTeacher:
    """A teacher that is a table: logits_table [K, V], whose row k answers for token k.

    The table is copied, without its graph, so it stays what it was. Errors: `ProviderError` for a token without a row.
    """

    def __init__(self, logits_table: Tensor) -> None:
        self._table_KV = _copied_table(logits_table)

    @property
    def vocab_size(self) -> int:
        return self._table_KV.shape[1]

    def logits(self, batch: Batch) -> Tensor:
        return self._table_KV[_row_indices("teacher", self._table_KV, batch)]


class FixtureStudent:
    """A student that is a table of logits [K, V]: gradient descent in logit space, without a model.

    A gradient [B, T, V] is applied at once: row tokens[b, t] loses learning_rate * gradient[b, t], for every b and t;
    gradients for one row add up. `logits_table` is a copy of the present table. Errors: `ProviderError` for a token
    without a row, `SettingError` for a learning rate that is negative or not finite.
    """

    def __init__(self, logits_table: Tensor, learning_rate: float) -> None:
        if not isinstance(learning_rate, int | float) or not 0 <= learning_rate < float("inf"):
            raise SettingError(f"learning_rate is {learning_rate!r}; expected a finite number >= 0")
        self._table_KV = _copied_table(logits_table)
        self._learning_rate = learning_rate

    @property
    def vocab_size(self) -> int:
        return self._table_KV.shape[1]

    @property
    def logits_table(self) -> Tensor:
        return self._table_KV.clone()

    def forward(self, batch: Batch) -> StudentPass:
        rows_BT = _row_indices("student", self._table_KV, batch)

        def descend(gradient_BTV: Tensor) -> None:
            change_BTV = -self._learning_rate * gradient_BTV.to(self._table_KV)
            self._table_KV.index_add_(0, rows_BT.flatten(), change_BTV.flatten(0, 1))

        return _OncePass(self._table_KV[rows_BT], descend)


class ModuleTeacher:
    """A teacher around any `nn.Module` that maps tokens [B, T] to logits [B, T, V] (or an object with such `.logits`).

    Its parameters ask for no gradient from here on, and every forward runs without a graph and with every submodule in
    eval mode; training flags are then what they were, also after an exception. So it stays frozen and free of dropout
    even where it shares modules with a student in train mode (shared parameters are then frozen for both; buffers that
    a student's forward writes, such as a shared BatchNorm's, are the student's to change).
    What a shared module builds in the teacher's forward and keeps, a student's graph can use: no inference mode.
    Tokens are moved to the module's device. Errors: `ProviderError`.
    """

    def __init__(self, module: nn.Module, vocab_size: int) -> None:
        self._module = module
        self._vocab_size = vocab_size
        self._freeze()

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def logits(self, batch: Batch) -> Tensor:
        self._freeze()  # a student that shares modules may have asked for gradients since
        with torch.no_grad(), evaluating(self._module):
            output = self._module(batch.tokens.to(_device_of(self._module)))
        return checked_logits("teacher", _logits_of(output), batch.tokens, self._vocab_size).detach()

    def _freeze(self) -> None:
        for parameter in self._module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None  # an optimizer would still apply a gradient left from before


class ModuleStudent:
    """A student around any `nn.Module` that maps tokens [B, T] to logits [B, T, V] (or an object with such `.logits`).

    A pass keeps its graph; its gradient is accumulated into the parameters' `.grad` as by autograd: buffers that are
    there are added to, and hooks run. Nothing is zeroed and no optimizer is stepped: the loop does both.
    Tokens are moved to the module's device. Errors: `ProviderError`.
    """

    def __init__(self, module: nn.Module, vocab_size: int) -> None:
        self._module = module
        self._vocab_size = vocab_size

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def forward(self, batch: Batch) -> StudentPass:
        output = self._module(batch.tokens.to(_device_of(self._module)))
        logits_BTV = checked_logits("student", _logits_of(output), batch.tokens, self._vocab_size)

        def accumulate(gradient_BTV: Tensor) -> None:
            if not logits_BTV.requires_grad:
                raise ProviderError("the student's logits depend on no parameter that asks for a gradient; all frozen?")
            torch.autograd.backward(logits_BTV, gradient_BTV)

        return _OncePass(logits_BTV.detach(), accumulate)


class _OncePass:
    """Logits, and what to do with their gradient: once, then forgotten along with its graph.

    Once even if doing it raises half-way, for a part of it may have arrived; a misshapen gradient is refused before.
    """

    def __init__(self, logits_BTV: Tensor, apply: Callable[[Tensor], None]) -> None:
        self._logits_BTV = logits_BTV
        self._apply: Callable[[Tensor], None] | None = apply

    @property
    def logits(self) -> Tensor:
        return self._logits_BTV

    def backward(self, logit_gradient: Tensor) -> None:
        if self._apply is None:
            raise PassConsumedError("this pass already had its one gradient; call forward again for a second one")
        if not isinstance(logit_gradient, Tensor):
            raise ShapeError(
                f"the gradient is a {type(logit_gradient).__name__}; expected a tensor shaped as the logits"
            )
        if logit_gradient.shape != self._logits_BTV.shape:
            read, expected = list(logit_gradient.shape), list(self._logits_BTV.shape)
            raise ShapeError(f"the gradient has shape {read}, the logits {expected}; was the shift undone?")
        apply, self._apply = self._apply, None
        apply(logit_gradient)


def _copied_table(logits_table: Tensor) -> Tensor:
    if not isinstance(logits_table, Tensor) or not logits_table.is_floating_point() or logits_table.dim() != 2:
        read = list(logits_table.shape) if isinstance(logits_table, Tensor) else type(logits_table).__name__
        raise ShapeError(f"a table of logits is {read}; expected a floating tensor [K, V]")
    return logits_table.detach().clone()


def _row_indices(model: str, table_KV: Tensor, batch: Batch) -> Tensor:
    tokens_BT = batch.tokens.to(table_KV.device).long()
    outside_BT = (tokens_BT < 0) | (tokens_BT >= len(table_KV))
    if outside_BT.any():
        token = tokens_BT[outside_BT][0]
        raise ProviderError(f"token {token} has no row in the {model}'s table of {len(table_KV)}; another tokenizer?")
    return tokens_BT


def _device_of(module: nn.Module) -> torch.device:
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def _logits_of(output: object) -> object:
    return output if isinstance(output, Tensor) else getattr(output, "logits", output)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Every submodule in eval mode; afterwards in the mode it was in, also after an exception."""
    before = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in before:
            part.training = False
        yield
    finally:
        for part, training in before:
            part.training = training
