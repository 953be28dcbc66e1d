"""Records updates of averages of weights: by `AveragedModel`, or by the script itself in a copy of a model."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from . import checkpoints, frames, modes
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

MAX_COPIES = 8
"""Largest number of copies whose updates are recorded."""
FAR = 16
"""An element of an average is far from the weights if it differs by at least this number of rounding steps."""


class Averages:
    """Copies of models that the script has made, models that loaded the weights of another one, and their updates.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._copies: weakref.WeakKeyDictionary[nn.Module, list[int]] = weakref.WeakKeyDictionary()
        """For every copy: its number (0 before its first update), and its `_version` in the last `record_updates`."""
        self._samples: weakref.WeakKeyDictionary[nn.Module, Tensor] = weakref.WeakKeyDictionary()
        """For every copy: a sample of its largest parameter after its last update, in float64."""
        self._last = ""
        """The argument `now` of the last call of `record_updates`: "backward" or "step"."""
        self._restored: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
        """For every copy: the result of `checkpoints.is_restored`, unless the result is None."""
        self._loaded: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """The modules that `add_loaded` has added."""

    def add_copy(self, module: nn.Module) -> None:
        """Add a module that was copied or unpickled."""
        # `deepcopy` restores the submodules of a module first, and adds them here. Only the outermost module is a copy.
        for part in module.modules():
            self._copies.pop(part, None)
        if len(self._copies) < MAX_COPIES and next(module.parameters(), None) is not None:
            self._copies[module] = [0, _version(module)]

    def add_loaded(self, module: nn.Module) -> None:
        """Add a module that has loaded the weights of another model; a second load shows that it is no average."""
        if module in self._loaded:  # a snapshot or target, which takes the weights again and again
            self._copies.pop(module, None)
            return
        # `add_copy` would remove the copies inside the module. Half of the places are left to copies.
        is_known = any(part in self._copies for part in module.modules())
        if not is_known and len(self._copies) < MAX_COPIES // 2:
            self.add_copy(module)
            self._loaded.add(module)

    def check_restored(self, trained: list[Tensor]) -> None:
        """Record which copies have the weights of a file, before the first step of the optimizer of `trained`."""
        for module in list(self._copies):
            restored = checkpoints.is_restored(self.observer, module, trained)
            if restored is not None:
                self._restored[module] = restored

    def is_average(self, module: nn.Module) -> bool:
        """Return whether a module is a copy that the script has updated as an average."""
        return bool(self._copies.get(module, [0])[0])

    def record_updates(self, now: str) -> None:
        """Record the copies that the script has updated since the last call of this method.

        Args:
            now: "backward" for the beginning or end of a backward pass, "step" for the end of a step.
        """
        for module, state in list(self._copies.items()):
            version = _version(module)
            if version != state[1]:
                state[1] = version
                if twins := self._trained_twins(module):
                    state[0] = state[0] or self.observer.number()
                    share, rounded = self._compare(module, twins[0]) if len(twins) == 1 else (None, None)
                    self.observer.add(
                        "average",
                        average=state[0],
                        model=getattr(self.observer.models.get(module), "number", None),
                        kind=type(module).__name__,
                        since=self._last,
                        until=now,
                        step=self.observer.steps,
                        restored=self._restored.get(module),
                        share=share,
                        rounded=rounded,
                    )
        self._last = now

    def _trained_twins(self, module: nn.Module) -> list[nn.Module]:
        """Return the trained models whose parameters have the shapes of a copy; [] if the copy has gradients."""
        shapes = [p.shape for p in module.parameters()]
        if any(p.grad is not None for p in module.parameters()):
            return []
        return [
            model
            for model, state in list(self.observer.models.items())
            if state.is_trained and model is not module and [p.shape for p in model.parameters()] == shapes
        ]

    def _compare(self, average: nn.Module, model: nn.Module) -> tuple[Late | None, Late | None]:
        """Compare an update of an average with the weights of the model, on a sample of the largest parameter.

        Returns:
            The share of the weights in the update, such as 0.01 for a decay of 0.99. In the trace, the share is null if
            the average equals the weights, or if the average before the update did. The second value is the result of
            `_rounded` for an average in half precision, else None. Both are None for the first update, and if the
            average is on another device.
        """
        parameter, weights = (max(module.parameters(), key=Tensor.numel) for module in (average, model))
        if parameter.device != weights.device:
            return None, None
        now, target = (self.observer.sample(tensor).detach() for tensor in (parameter, weights))
        rounded_target = target.to(now.dtype).double()
        now, target = now.double(), target.double()
        before, self._samples[average] = self._samples.get(average), now.clone()
        if before is None:
            return None, None
        # The share s is the least-squares solution of now - before = s * (target - before).
        moved, distance = (now - before) @ (target - before), (target - before).square().sum()
        is_copy = (now == target).all()
        share = Late([moved, distance, is_copy], lambda a, b, same: a[0] / b[0] if b[0] and not same[0] else None)
        if parameter.dtype not in (torch.bfloat16, torch.float16):
            return share, None
        return share, _rounded(before, now, rounded_target, torch.finfo(parameter.dtype))


def _rounded(before: Tensor, now: Tensor, target: Tensor, kind: torch.finfo) -> Late:
    """Return how an update of an average in half precision was rounded.

    In the trace, this is a list of four numbers:

    1. the number of elements that were at least `FAR` rounding steps from the weights;
    2. the number of far elements that the update did not change;
    3. the number of elements that changed, and kept more than half of their distance from the weights: the others were
       copied;
    4. the probability that a changed element was at least as far from the weights, in rounding steps, as an unchanged
       one; null without a changed element, or without an unchanged one that differs from the weights. If an update is
       rounded to the nearest number, only the farthest elements change, so the probability is about 1. It is lower if
       the average is rounded at random or with compensation, or is the rounded copy of an average in float32.

    Args:
        before: The average before the update, as float64 [n]; `now` and `target` too.
        now: The average after the update.
        target: The weights, rounded to the precision of the average.
        kind: The number format of the average.
    """
    step = kind.eps * torch.exp2(before.abs().clamp_min(kind.tiny).log2().floor())
    steps = (target - before).abs() / step
    is_far, is_changed = steps >= FAR, now != before
    is_kept = is_changed & ((target - now).abs() > (target - before).abs() / 2)
    pairs = is_changed.double()[:, None] * (~is_changed & (steps > 0)).double()[None]
    ordered = (pairs * (steps[:, None] >= steps[None])).sum()
    tensors = [is_far.sum(), (is_far & ~is_changed).sum(), is_kept.sum(), ordered, pairs.sum()]
    return Late(tensors, lambda *sums: [*(s[0] for s in sums[:3]), sums[3][0] / sums[4][0] if sums[4][0] else None])


def _version(module: nn.Module) -> int:
    """Return the sum of the version counters of the first and the last parameter."""
    # Two parameters are enough, because an update of an average writes all parameters. This function must be fast: it
    # runs for every copy in every backward pass and step.
    parameters = list(module.parameters())
    return parameters[0]._version + parameters[-1]._version


def install(observer: Callable[[], Observer]) -> None:
    """Wrap `Module.__setstate__`, `AveragedModel.update_parameters` and `update_bn`.

    Args:
        observer: Returns the observer of this process.
    """
    utils = importlib.import_module("torch.optim.swa_utils")

    def wrap(owner: object, name: str, part: str, record: Callable[..., None]) -> None:
        original = getattr(owner, name)

        @frames.wraps(original)
        def call(*args: object, **kwargs: object) -> object:
            result = original(*args, **kwargs)
            active = observer()
            if active.is_active():
                with active.observing(part):
                    record(*args, **kwargs)
            return result

        setattr(owner, name, call)

    def record_copy(module: nn.Module, state: object) -> None:
        observer().averages.add_copy(module)

    def record_update(average: nn.Module, model: nn.Module) -> None:
        custom = [getattr(average, name, None) for name in ("avg_fn", "multi_avg_fn")]
        observer().add(
            "averaged_model",
            equal=custom == [None, None] and not getattr(average, "use_buffers", False),
            statistics=sum(modes.has_statistics(layer) for layer in average.modules()),
            at=observer().at(),
        )

    def record_statistics(*args: object, **kwargs: object) -> None:
        observer().add("update_bn", at=observer().at())

    wrap(nn.Module, "__setstate__", "copy", record_copy)
    wrap(utils.AveragedModel, "update_parameters", "average", record_update)
    wrap(utils, "update_bn", "update_bn", record_statistics)
