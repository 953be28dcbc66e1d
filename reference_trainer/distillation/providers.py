"""Teachers and students for `kd_step` that wrap any `nn.Module`.

Hidden states can be matched if the forward of a module has the parameter `output_hidden_states`, and returns an object
with `.logits` and `.hidden_states` when this parameter is True, as `Decoder` and the models of Hugging Face do.

If a module has a large vocabulary and offers its output layer as `heads` documents, a step applies the output layer to
a chunk of rows at a time, and never forms all logits of a batch. If the output layer cannot be used, `note` is called
with the reason.

`FixtureTeacher` and `FixtureStudent` are tables of logits, with one row per token.

Shape letters: B batch, T position, V vocabulary, K token ids with a row in a table.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from reference_trainer.distillation.heads import Gradients, Head, OutputLayer
from reference_trainer.distillation.packed_rows import placed_segments, queued_copy
from reference_trainer.distillation.protocols import (
    Batch,
    FeaturePass,
    Outputs,
    Student,
    StudentPass,
    Teacher,
    checked_logits,
)
from reference_trainer.distillation.step import MetricSum, StepResult, kd_step
from reference_trainer.errors import PassConsumedError, ProviderError, SettingError, ShapeError

__all__ = [
    "Batch",
    "FixtureStudent",
    "FixtureTeacher",
    "MetricSum",
    "ModuleStudent",
    "ModuleTeacher",
    "OncePass",
    "StepResult",
    "Student",
    "StudentPass",
    "Teacher",
    "evaluating",
    "kd_step",
]


class FixtureTeacher:
    """A teacher whose logits after token k are row k of `logits_table`, floating [K, V].

    The table is copied without its graph. Raise `ShapeError` for a table of another shape or dtype, `ProviderError`
    for a token without a row.
    """

    def __init__(self, logits_table: Tensor) -> None:
        self._table_KV = _copied_table(logits_table)

    @property
    def vocab_size(self) -> int:
        return self._table_KV.shape[1]

    def logits(self, batch: Batch) -> Tensor:
        return self._table_KV[_row_indices("teacher", self._table_KV, batch)]


class FixtureStudent:
    """A student that is a table of logits, floating [K, V]: gradient descent in logit space, without a model.

    `backward` updates the table immediately: learning_rate * gradient[b, t] is subtracted from row tokens[b, t] for
    every b and t; gradients of the same row are summed. `logits_table` returns a copy of the current table. Raise
    `ShapeError` for a table of another shape or dtype, `ProviderError` for a token without a row, `SettingError` for a
    learning rate that is negative or not finite.
    """

    def __init__(self, logits_table: Tensor, learning_rate: float) -> None:
        if not isinstance(learning_rate, int | float) or not 0 <= learning_rate < float("inf"):
            raise SettingError(f"invalid value {learning_rate!r} for 'learning_rate': expected a finite number >= 0")
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

        def descend(gradient_BTV: Tensor, hidden_gradients: Sequence[Tensor | None]) -> None:
            change_BTV = -self._learning_rate * gradient_BTV.to(self._table_KV)
            # `index_add_` adds all changes of a row; an indexed assignment would keep only one of them.
            self._table_KV.index_add_(0, rows_BT.flatten(), change_BTV.flatten(0, 1))

        return OncePass(self._table_KV[rows_BT], descend)


def _copied_table(logits_table: Tensor) -> Tensor:
    """Return a copy without a graph. Raise `ShapeError` unless the table is floating [K, V]."""
    if not isinstance(logits_table, Tensor) or not logits_table.is_floating_point() or logits_table.dim() != 2:
        actual = list(logits_table.shape) if isinstance(logits_table, Tensor) else type(logits_table).__name__
        raise ShapeError(f"invalid table of logits: {actual}, expected a floating tensor [K, V]")
    return logits_table.detach().clone()


def _row_indices(model: str, table_KV: Tensor, batch: Batch) -> Tensor:
    """Return the tokens as int64 row indices [B, T]. Raise `ProviderError` for a token without a row."""
    tokens_BT = batch.tokens.to(table_KV.device).long()
    outside_BT = (tokens_BT < 0) | (tokens_BT >= len(table_KV))
    if outside_BT.any():
        token = tokens_BT[outside_BT][0]
        raise ProviderError(
            f"token {token} has no row in the {model}'s table of {len(table_KV)}; probably the tokenizers differ"
        )
    return tokens_BT


class OncePass:
    """A pass whose `backward` applies its gradients once, and then releases `apply` with its graph.

    After a gradient of a wrong shape, which raises `ShapeError`, `backward` may be called again. After an error of
    `apply`, it may not, because a part of the gradients may have been applied.

    Args:
        logits_BTV: The logits, detached.
        apply: Called with the gradients of logits and hidden states, at most once.
        hidden_states: The hidden states, detached.
    """

    def __init__(
        self,
        logits_BTV: Tensor,
        apply: Callable[[Tensor, Sequence[Tensor | None]], None],
        hidden_states: Sequence[Tensor] = (),
    ) -> None:
        self._logits_BTV, self._hidden_states = logits_BTV, hidden_states
        self._apply: Callable[[Tensor, Sequence[Tensor | None]], None] | None = apply

    @property
    def logits(self) -> Tensor:
        return self._logits_BTV

    @property
    def hidden_states(self) -> Sequence[Tensor]:
        return self._hidden_states

    def backward(self, logit_gradient: Tensor, hidden_gradients: Sequence[Tensor | None] = ()) -> None:
        if self._apply is None:
            raise PassConsumedError("backward was already called on this pass; call forward again for a new pass")
        if not isinstance(logit_gradient, Tensor):
            raise ShapeError(
                f"invalid gradient: {type(logit_gradient).__name__}, expected a tensor of the logits' shape"
            )
        if logit_gradient.shape != self._logits_BTV.shape:
            actual, expected = list(logit_gradient.shape), list(self._logits_BTV.shape)
            raise ShapeError(f"the gradient has shape {actual}, the logits {expected}; expected equal shapes")
        apply, self._apply = self._apply, None  # before the call, so that no other call follows if `apply` raises
        apply(logit_gradient, hidden_gradients or [None] * len(self._hidden_states))


class ModuleTeacher:
    """A teacher that wraps any `nn.Module` mapping tokens [B, T] to logits [B, T, V] or to an object with `.logits`.

    The parameters are frozen. Every forward runs without a graph, with all submodules in eval mode; their modes are
    restored afterwards, also after an exception. A student may share submodules with the teacher: shared parameters are
    frozen for both models, and shared buffers (BatchNorm) are updated by the student's forward only. The forward does
    not run in inference mode, because a shared module may keep tensors that the student's graph uses.

    Tokens and segments of a batch are moved to the module's device; segments are passed as the argument `segments`.
    Raise `ProviderError` if the result is not logits, or if the batch has segments and the forward has no parameter
    `segments`.
    """

    def __init__(self, module: nn.Module, vocab_size: int, *, note: Callable[[str], object] = warnings.warn) -> None:
        self._module = module
        self._vocab_size = vocab_size
        self._layer = OutputLayer("teacher", module, vocab_size, note)
        self._freeze()

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def logits(self, batch: Batch) -> Tensor:
        self._freeze()  # a student that shares modules may have unfrozen them
        with torch.no_grad(), evaluating(self._module):
            return _outputs_of("teacher", self._module, batch, self._vocab_size, False).logits.detach()

    def outputs(self, batch: Batch) -> Outputs:
        """Return logits and hidden states of one forward. Raise `ProviderError` if the module has no hidden states."""
        self._freeze()
        with torch.no_grad(), evaluating(self._module):
            outputs = _outputs_with_states("teacher", self._module, batch, self._vocab_size)
        return Outputs(outputs.logits.detach(), [state.detach() for state in outputs.hidden_states])

    def head(self, batch: Batch, *, hidden_states: bool = False) -> tuple[Head, Sequence[Tensor]] | None:
        """Return output layer and hidden states of one forward; None if the output layer cannot be used."""
        if not self._layer.is_offered(batch, self.logits):
            return None
        self._freeze()
        # While heads are recorded, the output layer returns logits with 0 columns.
        with torch.no_grad(), evaluating(self._module), self._layer.record_heads() as heads:
            states = _outputs_of("teacher", self._module, batch, 0, hidden_states).hidden_states
        return heads[0], [state.detach() for state in states]

    def _freeze(self) -> None:
        for parameter in self._module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None  # an optimizer would still apply an old gradient


class ModuleStudent:
    """A student that wraps any `nn.Module` mapping tokens [B, T] to logits [B, T, V] or to an object with `.logits`.

    A pass keeps its graph. `backward` accumulates into the parameters' `.grad` through autograd, in place and with
    hooks. Gradients are not zeroed and no optimizer is stepped: the training loop does both.

    Tokens and segments of a batch are moved to the module's device; segments are passed as the argument `segments`.
    Raise `ProviderError` if the result is not logits, if the batch has segments and the forward has no parameter
    `segments`, or in `backward` if no parameter requires a gradient.
    """

    def __init__(self, module: nn.Module, vocab_size: int, *, note: Callable[[str], object] = warnings.warn) -> None:
        self._module = module
        self._vocab_size = vocab_size
        self._layer = OutputLayer("student", module, vocab_size, note)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def forward(self, batch: Batch) -> StudentPass:
        return _module_pass(_outputs_of("student", self._module, batch, self._vocab_size, False))

    def forward_features(self, batch: Batch) -> FeaturePass:
        """Return a pass with hidden states. Raise `ProviderError` if the module has no hidden states."""
        return _module_pass(_outputs_with_states("student", self._module, batch, self._vocab_size))

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of a forward in eval mode, without a graph."""
        with torch.no_grad(), evaluating(self._module):
            return self.forward(batch).logits

    def outputs(self, batch: Batch) -> Outputs:
        """Return logits and hidden states in eval mode, without a graph. Raise as `forward_features`."""
        with torch.no_grad(), evaluating(self._module):
            return _outputs_with_states("student", self._module, batch, self._vocab_size)

    def offers_head(self, batch: Batch) -> bool:
        """Return whether `forward_head` is possible. All ranks call this together: the first call may run a forward."""
        return self._layer.is_offered(batch, self.logits)

    def forward_head(
        self,
        batch: Batch,
        consume: Callable[[Head], Gradients],
        *,
        hidden_states: bool = False,
        evaluated: bool = False,
    ) -> FeaturePass:
        """Run a forward in which `consume` replaces the output layer; see `heads.HeadStudent`."""
        with ExitStack() as stack:
            stack.enter_context(self._layer.consumed(consume))
            if evaluated:
                stack.enter_context(torch.no_grad())
                stack.enter_context(evaluating(self._module))
            # The replaced output layer returns zeros [B, T, 1].
            return _module_pass(_outputs_of("student", self._module, batch, 1, hidden_states))


def _module_pass(outputs: Outputs) -> OncePass:
    """Return a pass that runs one backward from logits and hidden states together."""

    def accumulate(gradient_BTV: Tensor, hidden_gradients: Sequence[Tensor | None]) -> None:
        if not outputs.logits.requires_grad:
            raise ProviderError(
                "the student's logits depend on no parameter that requires a gradient; probably all are frozen, or the "
                "loop is called under torch.no_grad()"
            )
        pairs = zip(outputs.hidden_states, hidden_gradients, strict=True)
        matched = [(state, gradient) for state, gradient in pairs if gradient is not None and state.requires_grad]
        states, gradients = [state for state, _ in matched], [gradient for _, gradient in matched]
        torch.autograd.backward([outputs.logits, *states], [gradient_BTV, *gradients])

    return OncePass(outputs.logits.detach(), accumulate, [state.detach() for state in outputs.hidden_states])


def _has_parameter(module: nn.Module, name: str, *, allow_kwargs: bool = False) -> bool:
    """Return whether the forward of a module has the parameter `name`.

    For a wrapper such as DDP, whose forward passes all arguments to the wrapped module, inspect the wrapped module.

    allow_kwargs: whether `**kwargs` counts as the parameter, in a module that is not a wrapper.
    """
    parameters = inspect.signature(module.forward).parameters
    has_kwargs = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    wrapped = getattr(module, "module", None)
    if has_kwargs and isinstance(wrapped, nn.Module):
        return _has_parameter(wrapped, name, allow_kwargs=allow_kwargs)
    return name in parameters or (has_kwargs and allow_kwargs)


def _run_forward(model: str, module: nn.Module, batch: Batch, **options: bool) -> object:
    """Return the output of a forward on the module's device.

    Raise `ProviderError` if the batch has segments and the forward has no parameter `segments`.

    model: "teacher" or "student", for messages.
    """
    device = device_of(module)
    tokens_BT = queued_copy(batch.tokens, device)
    if batch.segments is None:
        return module(tokens_BT, **options)
    if not _has_parameter(module, "segments"):
        raise ProviderError(
            f"the batch has segments, and the forward of the {model}'s module has no parameter 'segments', so the "
            f"documents of a row would attend to each other; use padded batches or a module that takes segments"
        )
    return module(tokens_BT, segments=placed_segments(batch.segments, device), **options)


def _outputs_of(model: str, module: nn.Module, batch: Batch, vocab_size: int, hidden_states: bool) -> Outputs:
    """Return the checked logits of a forward and, if `hidden_states`, the checked hidden states."""
    if hidden_states:
        return _outputs_with_states(model, module, batch, vocab_size)
    logits_BTV = checked_logits(model, _logits_of(_run_forward(model, module, batch)), batch.tokens, vocab_size)
    return Outputs(logits_BTV, ())


def _outputs_with_states(model: str, module: nn.Module, batch: Batch, vocab_size: int) -> Outputs:
    """Return the checked logits and hidden states of a forward."""
    # Models of transformers receive the option through `**kwargs`. If the forward of another module ignores the option,
    # the output has no hidden states, which is refused below.
    if not _has_parameter(module, "output_hidden_states", allow_kwargs=True):
        raise ProviderError(
            f"the forward of the {model}'s module has no parameter 'output_hidden_states', so it has no hidden states "
            f"to match; use a feature_weight of 0 or a module that returns `.logits` and `.hidden_states`"
        )
    output = _run_forward(model, module, batch, output_hidden_states=True)
    logits_BTV = checked_logits(model, _logits_of(output), batch.tokens, vocab_size)
    states = getattr(output, "hidden_states", None)
    if not isinstance(states, Sequence) or not all(isinstance(state, Tensor) for state in states):
        raise ProviderError(
            f"the {model} returned {type(states).__name__} for its hidden states, expected a sequence of tensors "
            f"[B, T, width], one for each layer"
        )
    return Outputs(logits_BTV, states)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the first parameter or buffer; the CPU if the module has neither."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def _logits_of(output: object) -> object:
    return output if isinstance(output, Tensor) else getattr(output, "logits", output)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set all submodules to eval mode; restore their modes afterwards, also after an exception."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        # Not `module.eval()`, which calls `train`: a module may override `train` to keep a frozen part in eval mode.
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, training in modes:
            part.training = training
