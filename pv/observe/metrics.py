"""Records metrics of torchmetrics, and the values by which callbacks of libraries choose the best state.

The constructor of a torchmetrics metric replaces `update` and `compute` of the instance. The observer wraps
torchmetrics at the first call of a model, after most metrics have been constructed. `wrap_libraries` therefore finds
existing metrics among all Python objects and wraps their methods, and wraps the constructor for later metrics.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from . import frames
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

MAX_COMPUTED, MAX_CHOICES = 500, 500
"""Largest numbers of `metric` events and of `choice` events of a process."""
LIGHTNING = ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks")
"""The package of Lightning's callbacks: its new and its old name."""


class Updates:
    """The updates of a metric since its last reset.

    Attributes:
        trained: Number of updates after a forward in training mode with gradients.
        evaluated: Number of updates in every evaluation. All updates between two optimizer steps are one evaluation,
            because a script may evaluate augmented copies of the data one after the other. An update counts only after
            a forward without gradients, in eval mode or with inputs from another loader than in training, of a model
            that also has forwards with gradients. So a forward of a teacher, or for pseudo labels, does not count.
        sources: Pairs of model and loader of the forwards in evaluations. If the loader is unknown, the pair has the
            number of steps before the evaluation instead, because every evaluation may have new inputs.
        place: The number of steps that had ended before the last evaluation.
        computed: Number of evaluations before the last computation of the metric.
    """

    def __init__(self, metric: object, number: int) -> None:
        self.metric, self.number = weakref.ref(metric), number
        self.clear()

    def clear(self) -> None:
        """Remove all updates, as after a reset."""
        self.trained = 0
        self.evaluated: list[int] = []
        self.sources: set[tuple[int, object]] = set()
        self.place: object = None
        self.computed = 0


class Metrics:
    """Records the metrics of one process, and the comparisons by which libraries choose the best state.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.depth = 0
        """Depth of the running calls of metrics. `forward` of a metric calls `update`, `compute` and `reset`."""
        self._updates: dict[int, Updates] = {}
        self._loaders: dict[int, object] = {}
        """The loader of the last inputs of a model with gradients, at the last update of a metric, by model number."""
        self._events = {"metric": 0, "choice": 0}

    def updates_of(self, metric: object) -> Updates:
        """Return the updates of a metric since its last reset."""
        entry = self._updates.get(id(metric))
        if entry is None or entry.metric() is not metric:
            entry = self._updates[id(metric)] = Updates(metric, self.observer.number())
        return entry

    def record_update(self, metric: object) -> None:
        """Record an update of a metric with the results of the last forward."""
        last = self.observer._last_forward
        if last is None:
            return
        updates = self.updates_of(metric)
        if last["grad"]:
            updates.trained += bool(last["training"])
            self._loaders[last["model"]] = last["loader"]
            return
        loader, number = last["loader"], last["model"]
        is_other_loader = loader is not None and loader != self._loaders.get(number, loader)
        is_trained = any(m.number == number and m.calls_by_grad[True] for m in list(self.observer.models.values()))
        if not is_trained or (last["training"] and not is_other_loader):
            return
        place = self.observer.ended_steps
        if place != updates.place:
            updates.evaluated.append(0)
            updates.place = place
        updates.evaluated[-1] += 1
        updates.sources.add((last["model"], place if loader is None else loader))

    def record_result(self, metric: Any) -> None:
        """Record a computation of the value of a metric over all its updates."""
        updates = self.updates_of(metric)
        self._events["metric"] += 1
        if self._events["metric"] <= MAX_COMPUTED and (updates.trained or updates.evaluated):
            self.observer.add(
                "metric",
                metric=updates.number,
                kind=type(metric).__name__,
                aggregates=any(kind.__name__ == "BaseAggregator" for kind in type(metric).__mro__),
                trained=updates.trained,
                evaluated=updates.evaluated[-20:],
                computed=updates.computed,
                sources=len(updates.sources),
                at=self.observer.sites.find(2)[0],
            )
        updates.computed = len(updates.evaluated)

    def record_choice(self, by: str, name: object, mode: object, value: object) -> None:
        """Record that a library compares a value with the best value so far.

        Args:
            by: The class that compares the values.
            name: The name of the metric.
            mode: "min" or "max".
            value: The new value: a number or a tensor. Other objects are not recorded.
        """
        self._events["choice"] += 1
        if self._events["choice"] > MAX_CHOICES or not isinstance(name, str) or mode not in ("min", "max"):
            return
        if isinstance(value, Tensor) and value.numel() == 1:
            value = Late([value.detach().reshape(1).clone()], lambda numbers: numbers[0])
        elif hasattr(value, "__float__"):
            value = float(value)
        else:
            return
        self.observer.add("choice", by=by, name=name, mode=mode, value=value, at=self.observer.at())


def wrap_libraries(observer: Callable[[], Observer]) -> None:
    """Wrap functions of torchmetrics, Lightning and transformers if the script has imported these packages.

    Args:
        observer: Returns the observer of this process.
    """

    def choice(by: str, describe: Callable[..., tuple[object, object, object]]) -> Callable[..., Any]:
        """Return a function that wraps a method to record a `choice` by the class `by`.

        `describe` gets the arguments of the method, and returns the name of the metric, the mode and the value.
        """

        def make(original: Callable[..., object]) -> Callable[..., object]:
            def call(self: Any, *args: Any, **kwargs: Any) -> object:
                active = observer()
                if active.is_active():
                    with active.observing("choice"):
                        active.metrics.record_choice(by, *describe(self, *args, **kwargs))
                return original(self, *args, **kwargs)

            return call

        return make

    def describe_callback(callback: Any, *args: object, current: object = None) -> tuple[object, object, object]:
        return callback.monitor, callback.mode, args[-1] if args else current

    def describe_trainer(trainer: Any, metrics: Any, *_: object, **__: object) -> tuple[object, object, object]:
        name = trainer.args.metric_for_best_model or ""
        name = name if name.startswith("eval_") else f"eval_{name}"
        return name, "max" if trainer.args.greater_is_better else "min", metrics.get(name)

    for package in LIGHTNING:
        for module, owner, name in (
            ("model_checkpoint", "ModelCheckpoint", "check_monitor_top_k"),
            ("early_stopping", "EarlyStopping", "_evaluate_stopping_criteria"),
        ):
            _wrap_once(f"{package}.{module}", owner, name, choice(owner, describe_callback))
    _wrap_once("transformers.trainer", "Trainer", "_determine_best_metric", choice("Trainer", describe_trainer))
    if _wrap_once("torchmetrics.metric", "Metric", "_wrap_update", _in_constructor(observer, "update")):
        _wrap_once("torchmetrics.metric", "Metric", "_wrap_compute", _in_constructor(observer, "compute"))
        kind = sys.modules["torchmetrics.metric"].Metric
        for name in ("forward", "reset"):
            frames.wrap(kind, name, functools.partial(_call_of, observer, name))
        # `type(part)`, because `isinstance` reads `part.__class__`, which may run code of the object.
        for metric in [part for part in gc.get_objects() if issubclass(type(part), kind)]:
            for name in ("update", "compute"):
                if name in vars(metric):
                    vars(metric)[name] = _bound(observer, name, metric, vars(metric)[name])


def _wrap_once(module: str, owner: str, name: str, make: Callable[..., Any]) -> bool:
    """Wrap a method of a class, and return whether this call wrapped the method.

    Return False if the module is not imported, has no such method, or the method is wrapped already.
    """
    kind = getattr(sys.modules.get(module), owner, None)
    original = getattr(kind, name, None)
    if original is None or hasattr(original, "_pv_is_wrapped"):
        return False
    frames.wrap(kind, name, make)
    getattr(kind, name)._pv_is_wrapped = True
    return True


def _in_constructor(observer: Callable[[], Observer], name: str) -> Callable[..., Any]:
    """Return a function that wraps `Metric._wrap_update` or `Metric._wrap_compute`.

    The constructor of a metric calls these methods, and stores the results as its `update` and `compute`.
    """

    def make(original: Callable[..., Any]) -> Callable[..., object]:
        def wrap(self: object, method: object) -> object:
            return _bound(observer, name, self, original(self, method))

        return wrap

    return make


def _bound(observer: Callable[[], Observer], name: str, metric: object, method: Any) -> Callable[..., object]:
    """Wrap the bound method `name` of a metric. The wrapper has only a weak reference to the metric."""
    call = _call_of(observer, name, lambda self, *args, **kwargs: method(*args, **kwargs))
    reference = weakref.ref(metric)

    @frames.wraps(method)
    def bound(*args: object, **kwargs: object) -> object:
        return call(reference(), *args, **kwargs)

    return bound


def _call_of(observer: Callable[[], Observer], name: str, original: Callable[..., object]) -> Callable[..., object]:
    """Wrap the method `name` of metrics. Only outermost calls are recorded, because `forward` calls other methods."""

    @frames.hidden
    def call(self: object, *args: object, **kwargs: object) -> object:
        active = observer()
        metrics = active.metrics
        if not metrics.depth and active.is_active():
            with active.observing("metric"):
                if name in ("update", "forward"):
                    metrics.record_update(self)
                elif name == "reset":
                    metrics.updates_of(self).clear()
                else:
                    metrics.record_result(self)
        metrics.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            metrics.depth -= 1

    return call
