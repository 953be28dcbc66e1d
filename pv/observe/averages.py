"""Records updates of averages of weights: by `AveragedModel`, or by the script itself in a copy of a model."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from . import checkpoints, frames, modes
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

MAX_COPIES = 8
"""Largest number of copies whose updates are recorded."""


class Averages:
    """The copies of models that the script has made, and the updates of these copies.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._copies: weakref.WeakKeyDictionary[nn.Module, list[int]] = weakref.WeakKeyDictionary()
        """For every copy: its number (0 before its first update), and its `_version` in the last `record_updates`."""
        self._samples: weakref.WeakKeyDictionary[nn.Module, Tensor] = weakref.WeakKeyDictionary()
        """For every copy: a sample of its largest parameter after its last update."""
        self._last = ""
        """The argument `now` of the last call of `record_updates`: "backward" or "step"."""
        self._restored: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
        """For every copy: the result of `checkpoints.is_restored`, unless the result is None."""

    def add_copy(self, module: nn.Module) -> None:
        """Add a module that was copied or unpickled."""
        # `deepcopy` restores the submodules of a module first, and adds them here. Only the outermost module is a copy.
        for part in module.modules():
            self._copies.pop(part, None)
        if len(self._copies) < MAX_COPIES and next(module.parameters(), None) is not None:
            self._copies[module] = [0, _version(module)]

    def add_loaded(self, module: nn.Module) -> None:
        """Add a module that has loaded the weights of another model, unless the module is known as a copy."""
        if module not in self._copies:
            self.add_copy(module)

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
                    self.observer.add(
                        "average",
                        average=state[0],
                        model=getattr(self.observer.models.get(module), "number", None),
                        kind=type(module).__name__,
                        since=self._last,
                        until=now,
                        step=self.observer.steps,
                        restored=self._restored.get(module),
                        share=self._share(module, twins[0]) if len(twins) == 1 else None,
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

    def _share(self, average: nn.Module, model: nn.Module) -> Late | None:
        """Return the share of the model's weights in an update of their average, such as 0.01 for a decay of 0.99.

        In the trace, the share is null if the average equals the weights, or if the average before the update did.
        Return None for the first update, and if the average is on another device.
        """
        weights = [max(module.parameters(), key=Tensor.numel) for module in (average, model)]
        if weights[0].device != weights[1].device:
            return None
        now, target = (self.observer.sample(parameter).detach().double() for parameter in weights)
        before, self._samples[average] = self._samples.get(average), now.clone()
        if before is None:
            return None
        # The share s is the least-squares solution of now - before = s * (target - before).
        moved, distance = (now - before) @ (target - before), (target - before).square().sum()
        is_copy = (now == target).all()
        return Late([moved, distance, is_copy], lambda a, b, same: a[0] / b[0] if b[0] and not same[0] else None)


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
