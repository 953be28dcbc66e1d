"""The model that every trainer trains, and the recorder of its forwards and of all optimizer steps."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import Optimizer

PAD, NAMES, TEXT, VOCABULARY = 0, (1, 32), (32, 48), 48
"""Token 0 is padding, tokens 1 to 31 are names of examples, 32 to 47 are text. The ends of ranges are exclusive."""
WIDTH = 4
"""The number of hidden values per position."""


class Probe(nn.Module):
    """A causal model in float64: embedding, tanh, dropout, head. The logits of a position depend on its token alone.

    The first token of a row that is not padding is the name of the example. So the recorder recognizes examples behind
    every collator, sampler and wrapper.

    Args:
        dropout: The dropout probability of the hidden values.
        frozen: Whether the embedding requires no gradient.
        silent: Whether forwards are not recorded. The oracle's copy of the model is silent.
        tied: Whether embedding and head share their weights.
        broken: The forwards in eval mode that return NaN, by their number from 0.
        overflows: The forwards in training mode with gradients whose gradient is infinite, by their number from 0.
        not_finite: The forwards in training mode with gradients whose loss is not finite, by their number from 0, with
            the loss: NaN or infinity.
    """

    def __init__(
        self,
        *,
        dropout: float = 0.0,
        frozen: bool = False,
        silent: bool = False,
        tied: bool = False,
        broken: Collection[int] = (),
        overflows: Collection[int] = (),
        not_finite: Mapping[int, float] | None = None,
    ) -> None:
        super().__init__()
        # A separate generator, since the global generator belongs to the trainer.
        generator = torch.Generator().manual_seed(12345)
        self.silent, self.broken, self.overflows, self.not_finite = silent, broken, overflows, not_finite or {}
        # The numbers of forwards in eval mode, and in training mode with gradients, so far.
        self.eval_forwards = self.train_forwards = 0
        self.embed = nn.Embedding(VOCABULARY, WIDTH, dtype=torch.float64)
        self.head = nn.Linear(WIDTH, VOCABULARY, dtype=torch.float64)
        self.drop = nn.Dropout(dropout)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        self.embed.weight.requires_grad_(not frozen)
        if tied:
            self.head.weight = self.embed.weight

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Return the hidden states [B, T, width] of token ids [B, T]."""
        if not self.silent:
            recorder().note_forward(names(input_ids), input_ids.shape[1], self.training)
        hidden: Tensor = self.drop(torch.tanh(self.embed(input_ids)))
        self.eval_forwards += not self.training
        self._watch_gradient(hidden)
        return hidden * torch.nan if not self.training and self.eval_forwards - 1 in self.broken else hidden

    def _watch_gradient(self, hidden: Tensor) -> None:
        """Register a hook on hidden states [B, T, width] that records their gradient.

        In the forwards of `overflows` and `not_finite`, the hook also makes the gradient infinite.
        """
        if self.silent or not self.training or not hidden.requires_grad:
            return
        factor = torch.inf if self.train_forwards in {*self.overflows, *self.not_finite} else 1.0
        self.train_forwards += 1
        # The gradient of hidden states is recorded before any clipping or unscaling, so it shows the scale of a scaler.
        hidden.register_hook(lambda gradient: recorder().note_gradient(gradient * factor))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits [B, T, V] of token ids [B, T]. In training mode, a mask is recorded.

        A mask has no effect on the logits.
        """
        if self.training and not self.silent:
            recorder().note_mask(input_ids, attention_mask)
        logits: Tensor = self.head(self.hidden(input_ids))
        loss = self.not_finite.get(self.train_forwards - 1) if self.training and logits.requires_grad else None
        if loss is None:
            return logits
        if math.isnan(loss):
            return logits * math.nan
        # An infinite loss must come from the logits, since the loop computes the loss. All labels are tokens of the
        # text. If the logits of these tokens are -inf, their probability is 0 and the cross-entropy is infinite.
        penalty = torch.zeros(VOCABULARY)
        penalty[slice(*TEXT)] = math.inf
        return logits - penalty


def names(input_ids: Tensor) -> list[int]:
    """Return the names of the examples in token ids [B, T]: the first token of each row that is not padding.

    Rows that contain only padding have no name, and are left out.
    """
    rows = [[token for token in row if token != PAD] for row in input_ids.tolist()]
    return [row[0] for row in rows if row]


def token_loss(logits: Tensor, labels: Tensor, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy in nats. The labels are not shifted yet; this function shifts them by one position.

    Args:
        logits: The logits [B, T, V]. The logits at position t predict the label at position t + 1.
        labels: The labels [B, T]. The label -100 is not scored.
        reduction: `mean` or `sum` over the scored tokens.
        smoothing: The label smoothing: the fraction of the target that is spread over all tokens of the vocabulary.
    """
    rows, targets = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return cross_entropy(rows, targets, ignore_index=-100, reduction=reduction, label_smoothing=smoothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimizer step as the optimizer saw it."""

    # The names of the examples of each forward in training mode with gradients since the last step.
    batches: tuple[tuple[int, ...], ...]
    # The number of positions of a row in each forward of `batches`.
    widths: tuple[int, ...]
    # The weights before the first forward of `batches`; {} if there was none.
    weights_before: Mapping[str, Tensor]
    # The learning rate of each parameter that the optimizer holds, by name.
    rates: Mapping[str, float]
    # The weight decay of each parameter that the optimizer holds, by name.
    decays: Mapping[str, float]
    # The gradient of each parameter by name, or None.
    gradient: Mapping[str, Tensor | None]
    # For each backward since the last step, the largest absolute element of the gradient of the hidden states. It
    # includes the factor of a gradient scaler.
    hidden_gradients: tuple[float, ...]
    # The weights after the step.
    weights: Mapping[str, Tensor]
    # The state of the optimizer after the step, by `parameter.key`.
    state: Mapping[str, Tensor]
    # A digest of the state of the default generator before the first forward of `batches`. If `batches` is empty:
    # before the last forward in training mode without gradients since the last step; "" if there was none.
    random_digest: str

    @property
    def rate(self) -> float:
        """The learning rate of the first parameter that the optimizer holds."""
        return next(iter(self.rates.values()))

    @property
    def names(self) -> tuple[int, ...]:
        """The names of the examples of all forwards of `batches`."""
        return tuple(itertools.chain(*self.batches))


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """A row of token ids with its attention mask of ones and zeros."""

    ids: list[int]
    mask: list[float]
    # Whether the mask has the dtype bool.
    is_bool: bool


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The recorded forwards and optimizer steps of the probe in one run."""

    probe: Probe | None = None
    steps: list[Step] = field(default_factory=list)
    # The next step gets these three as its fields `batches`, `widths` and `weights_before`.
    pending: list[tuple[int, ...]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    weights_before: dict[str, Tensor] = field(default_factory=dict)
    # `Run` explains the fields `evaluated` to `masked`, `initial_evaluations` and `width`.
    evaluated: list[tuple[int, ...]] = field(default_factory=list)
    eval_with_grad: list[tuple[int, ...]] = field(default_factory=list)
    train_without_grad: list[tuple[int, ...]] = field(default_factory=list)
    masked: list[MaskedRow] = field(default_factory=list)
    # The next step gets these two as its fields of the same names.
    hidden_gradients: list[float] = field(default_factory=list)
    random_digest: str = ""
    # The number of forwards of the run so far.
    forwards: int = 0
    initial_evaluations: int = 0
    width: int = 0

    def watch(self, probe: Probe) -> Probe:
        """Record the forwards and steps of a probe from now on, and return the probe."""
        self.probe = probe
        return probe

    def note_forward(self, names: list[int], width: int, training: bool) -> None:
        """Record a forward.

        Args:
            names: The names of the examples in the batch.
            width: The number of positions per row.
            training: Whether the probe is in training mode.
        """
        if not names:  # only padding, as in a first forward with zeros under DDP: not a batch of the data
            return
        self.width = max(self.width, width if training else 0)
        self.forwards += 1
        self.initial_evaluations += not (training or self.pending or self.steps)
        # The digest is taken before the first forward of a window, since dropout in the forward changes the state.
        if training and not self.pending:
            self.random_digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
        if training and torch.is_grad_enabled():
            self.widths.append(width)
            if not self.weights_before and self.probe is not None:
                self.weights_before = {
                    name: parameter.detach().clone() for name, parameter in self.probe.named_parameters()
                }
        # A forward in training mode without gradients does not train; it may be an evaluation that forgot eval mode.
        if training:
            (self.pending if torch.is_grad_enabled() else self.train_without_grad).append(tuple(names))
            return
        self.evaluated.append(tuple(names))
        if torch.is_grad_enabled():
            self.eval_with_grad.append(tuple(names))

    def note_mask(self, input_ids: Tensor, mask: object) -> None:
        """Record the rows of token ids [B, T] with their mask.

        A mask is recorded only if it has the shape [B, T], contains only zeros and ones, and is not all zeros.
        """
        if isinstance(mask, Tensor) and mask.shape == input_ids.shape and mask.any():
            if bool(((mask == 0) | (mask == 1)).all()):
                rows = zip(input_ids.tolist(), mask.float().tolist(), strict=True)
                self.masked.extend(MaskedRow(ids, mask_row, mask.dtype is torch.bool) for ids, mask_row in rows)

    def note_gradient(self, gradient: Tensor) -> Tensor:
        """Record the largest absolute element of a gradient of hidden states, and return the gradient unchanged."""
        self.hidden_gradients.append(float(gradient.abs().max()))
        return gradient

    def note_step(self, optimizer: Optimizer, *_: object) -> None:
        """Record a step after an optimizer has taken it. Ignore an optimizer without parameters of the probe."""
        named = dict(self.probe.named_parameters()) if self.probe is not None else {}
        names = {id(parameter): name for name, parameter in named.items()}
        held = [
            (group, parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in names
        ]
        if not held:
            return
        self.steps.append(
            Step(
                batches=tuple(self.pending),
                widths=tuple(self.widths),
                weights_before=self.weights_before,
                rates={names[id(parameter)]: float(group["lr"]) for group, parameter in held},
                decays={names[id(parameter)]: float(group.get("weight_decay", 0.0)) for group, parameter in held},
                gradient={n: None if p.grad is None else p.grad.detach().clone() for n, p in named.items()},
                hidden_gradients=tuple(self.hidden_gradients),
                weights={n: p.detach().clone() for n, p in named.items()},
                state={f"{n}.{key}": state for n, p in named.items() for key, state in _state(optimizer, p)},
                random_digest=self.random_digest,
            )
        )
        # The next window begins. At the end of the run, forwards that no step followed are left in `pending`.
        self.pending, self.widths, self.weights_before, self.hidden_gradients, self.random_digest = [], [], {}, [], ""


def _state(optimizer: Optimizer, parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors and numbers in an optimizer's state of a parameter, each as its key and a copy."""
    for key, state in optimizer.state.get(parameter, {}).items():
        if isinstance(state, Tensor | int | float):
            yield key, torch.as_tensor(state).detach().clone()


_current = Recorder()


def recorder() -> Recorder:
    """Return the recorder of the current run."""
    return _current


def start_recording() -> Recorder:
    """Replace the recorder of the current run by a new one, and return the new recorder."""
    global _current
    _current = Recorder()
    return _current
