"""Record what a trainer does: the examples of every forward, and every step of the optimizer."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pv.suites.training_loop.probe import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimizer step as the optimizer saw it.

    batches: the names in each forward in training mode since the last step. widths: the positions of a row in each of
    these forwards. first: the weights in the first of them, empty if there was none. rates: by the name of each
    parameter that the optimizer holds. decays: weight decay, likewise. gradient: None where a parameter had none.
    scaled: the largest element of the gradient of the hidden states in each backward since the last step. weights:
    after the step. state: of the optimizer, after the step, by `parameter.key`. random: a digest of the state of
    PyTorch's default generator before the first of those forwards; "" if there was none.
    """

    batches: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]
    first: Mapping[str, Tensor]
    rates: Mapping[str, float]
    decays: Mapping[str, float]
    gradient: Mapping[str, Tensor | None]
    scaled: tuple[float, ...]
    weights: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    random: str

    @property
    def rate(self) -> float:
        return next(iter(self.rates.values()))

    @property
    def names(self) -> tuple[int, ...]:
        return tuple(itertools.chain(*self.batches))


@dataclass(frozen=True, slots=True)
class Masked:
    """A row of token ids with its mask of ones and zeros. of_bools: whether the mask had the dtype bool."""

    ids: list[int]
    mask: list[float]
    of_bools: bool


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The forwards and optimizer steps of the probe of the current run.

    evaluated: the names in each forward in eval mode. graded: those of them with gradients. untrained: those of
    forwards in training mode without a gradient. early: how many of those in eval mode precede all others. masked: the
    rows with a mask in forwards in training mode. width: the most tokens of a row in these. widths, first: of the
    pending forwards, as in a step.
    """

    probe: Probe | None = None
    steps: list[Step] = field(default_factory=list)
    pending: list[tuple[int, ...]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    first: dict[str, Tensor] = field(default_factory=dict)
    evaluated: list[tuple[int, ...]] = field(default_factory=list)
    graded: list[tuple[int, ...]] = field(default_factory=list)
    untrained: list[tuple[int, ...]] = field(default_factory=list)
    masked: list[Masked] = field(default_factory=list)
    scaled: list[float] = field(default_factory=list)
    random: str = ""
    forwards: int = 0
    early: int = 0
    width: int = 0

    def watch(self, probe: Probe) -> Probe:
        """Record this probe, and return it."""
        self.probe = probe
        return probe

    def note_forward(self, names: list[int], width: int, training: bool) -> None:
        """Note a forward of rows with these names, each of `width` positions."""
        if not names:  # no batch: DDP warms up with zeros
            return
        self.width = max(self.width, width if training else 0)
        self.forwards += 1
        self.early += not (training or self.pending or self.steps)
        # Before the first forward of a window: dropout draws right after it.
        if training and not self.pending:
            self.random = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
        if training and torch.is_grad_enabled():
            self.widths.append(width)
            if not self.first and self.probe is not None:
                self.first = {name: parameter.detach().clone() for name, parameter in self.probe.named_parameters()}
        # A forward in training mode without gradients trains nothing, as in an evaluation that forgot eval mode.
        kept = self.pending if torch.is_grad_enabled() else self.untrained
        (kept if training else self.evaluated).append(tuple(names))
        if not training and torch.is_grad_enabled():
            self.graded.append(tuple(names))

    def note_mask(self, input_ids: Tensor, mask: object) -> None:
        """Note the rows of token ids [B, T] with a mask [B, T] of ones and zeros; none if it has another form."""
        if isinstance(mask, Tensor) and mask.shape == input_ids.shape and mask.any():
            if bool(((mask == 0) | (mask == 1)).all()):
                rows = zip(input_ids.tolist(), mask.float().tolist(), strict=True)
                self.masked.extend(Masked(ids, mask_row, mask.dtype is torch.bool) for ids, mask_row in rows)

    def note_gradient(self, gradient: Tensor) -> Tensor:
        """Note a gradient of hidden states, and return it."""
        self.scaled.append(float(gradient.abs().max()))
        return gradient

    def note_step(self, optimizer: Optimizer, *_: Any) -> None:
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
                first=self.first,
                rates={names[id(parameter)]: float(group["lr"]) for group, parameter in held},
                decays={names[id(parameter)]: float(group.get("weight_decay", 0.0)) for group, parameter in held},
                gradient={n: None if p.grad is None else p.grad.detach().clone() for n, p in named.items()},
                scaled=tuple(self.scaled),
                weights={n: p.detach().clone() for n, p in named.items()},
                state={f"{n}.{key}": state for n, p in named.items() for key, state in _state(optimizer, p)},
                random=self.random,
            )
        )
        # The next window begins; forwards that no step follows stay in `pending`.
        self.pending, self.widths, self.first, self.scaled, self.random = [], [], {}, [], ""


def _state(optimizer: Optimizer, parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
    for key, state in optimizer.state.get(parameter, {}).items():
        if isinstance(state, Tensor | int | float):
            yield key, torch.as_tensor(state).detach().clone()


_current = Recorder()


def recorder() -> Recorder:
    """Return the recorder of the current run."""
    return _current


def record() -> Recorder:
    """Start a new recording, and return it."""
    global _current
    _current = Recorder()
    return _current
