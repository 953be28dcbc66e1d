"""Records handwritten updates of parameters, without a `torch.optim.Optimizer`, as steps of an optimizer.

There are two cases:

1. An object of the script holds the parameters and has a method `step`. Such objects are searched in the frames that
   call the backward pass, and their method `step` is wrapped.
2. Statements of the training loop change the parameters, such as `p.data -= lr * p.grad`. This change is detected when
   the next backward pass begins, or when gradients are cleared.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Optional

import torch
from torch import Tensor, nn

from . import frames

FRAMES = 12
"""Number of frames, from the caller of the backward pass outwards, that are searched for optimizers."""
SEARCHES = 40
"""Number of backward passes, after a new model, before which handwritten optimizers and updates are searched."""
COMPARED_PARAMETERS = 4
"""Number of parameters that are compared to detect an update by statements, after the first detected update."""


class HandwrittenOptimizer:
    """A handwritten optimizer, with the attributes of `torch.optim.Optimizer` that the observer needs.

    Args:
        parameters: The parameters that the optimizer updates.
        holder: The object of the script whose `step` updates the parameters; None for statements of a loop.
    """

    def __init__(self, parameters: list[Tensor], holder: object = None) -> None:
        self.parameters = parameters
        self.holder = holder
        self.kind = "update by hand" if holder is None else type(holder).__name__
        self.snapshots: list[tuple[int, Tensor]] = []
        """Versions and samples of the parameters before a step of the object, or before an update by statements."""
        self.confirmed = False
        """Whether a step of the object has changed a parameter, and a parameter has a gradient."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return one group, like `torch.optim.Optimizer`, with the learning rate if the object has this attribute."""
        rates = [getattr(self.holder, name, None) for name in ("lr", "learning_rate")]
        numbers = [float(rate) for rate in rates if isinstance(rate, (int, float))]
        return [{"params": self.parameters, **({"lr": numbers[0]} if numbers else {})}]


class Updates:
    """Finds the handwritten optimizers of one process, and records their steps.

    Args:
        observer: The observer of the process.
    """

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.statements: list[HandwrittenOptimizer] = []
        """The optimizers of updates by statements."""
        self.objects: dict[int, HandwrittenOptimizer] = {}
        """The optimizers of objects, by id of the object."""
        self.searches = 0
        """Number of searches since the last new model."""
        self.snapshots: dict[int, tuple[int, Tensor, object, int]] = {}
        """The parameters with a gradient that no optimizer holds, after the last backward pass, by id.

        A value has the version of the parameter, a sample of the parameter, a weak reference to its gradient, and the
        version of the gradient.
        """

    def _free_parameters(self) -> list[Tensor]:
        """Return the parameters of models that require a gradient and that no optimizer holds."""
        held = {id(p) for o in self.observer.optimizers for group in o.param_groups for p in group["params"]}
        modules = list(self.observer.models)
        return [p for m in modules for p in m.parameters() if p.requires_grad and id(p) not in held]

    def before_backward(self, frame: Optional[FrameType]) -> None:
        """Record an update by statements. Before the first backward passes, also search for handwritten optimizers.

        Args:
            frame: The frame that calls the backward pass.
        """
        self.record_statements()
        if self.searches >= SEARCHES:
            return
        self.searches += 1
        parameters = self._free_parameters()
        for holder, held in _holders(frame, {id(p): p for p in parameters}) if parameters else ():
            if id(holder) not in self.objects:
                optimizer = self.objects[id(holder)] = HandwrittenOptimizer(held, holder)
                self.observer.state_of(optimizer)
                _wrap_class(type(holder), self.observer)
        # Updates by statements are searched only if the script has no optimizer. In a script with an optimizer, such
        # statements may update codebooks, clamp the weights of a critic, or average weights.
        if len(self.observer.optimizers) > len(self.statements):
            return
        # If a parameter of a model has changed since the last backward pass, create one optimizer for all parameters of
        # the model that had a gradient. The update that was found now is not recorded, but the next ones are.
        compared = [p for p in self._free_parameters() if id(p) in self.snapshots]
        changed = {id(p) for p in compared if self._is_changed(p, *self.snapshots[id(p)][:2])}
        for module in list(self.observer.models) if changed else ():
            ids = {id(p) for p in module.parameters()}
            if changed & ids:
                optimizer = HandwrittenOptimizer([p for p in compared if id(p) in ids])
                self.statements.append(optimizer)
                state = self.observer.state_of(optimizer)
                state.last_versions = {id(p): self.snapshots[id(p)][2:] for p in optimizer.parameters}
                changed -= ids

    def after_backward(self) -> None:
        """Store the versions and samples of parameters after a backward pass, to detect later changes."""
        sample = self.observer.sample
        for optimizer in self.statements:
            optimizer.snapshots = [(p._version, sample(p).clone()) for p in optimizer.parameters[:COMPARED_PARAMETERS]]
            self.observer.before_step(optimizer)
            self.observer.state_of(optimizer).gradients = self.observer.norm(optimizer)
        self.snapshots = {}
        for p in self._free_parameters() if self.searches < SEARCHES else ():
            if p.grad is not None:
                self.snapshots[id(p)] = (p._version, sample(p).clone(), weakref.ref(p.grad), p.grad._version)

    def begin_step(self, optimizer: HandwrittenOptimizer) -> None:
        """Record the parameters and gradients before a handwritten optimizer takes a step."""
        if not optimizer.confirmed:
            optimizer.snapshots = [(p._version, self.observer.sample(p).clone()) for p in optimizer.parameters]
        self.observer.before_step(optimizer)

    def end_step(self, optimizer: HandwrittenOptimizer) -> None:
        """Record a step of a handwritten optimizer, after the step.

        If the first observed step changes no parameter, or no parameter has a gradient, the object is not an optimizer,
        and is forgotten.
        """
        if not optimizer.confirmed:
            pairs = list(zip(optimizer.parameters, optimizer.snapshots))
            changed = any(self._is_changed(p, version, values) for p, (version, values) in pairs)
            optimizer.confirmed = changed and any(p.grad is not None for p in optimizer.parameters)
            optimizer.snapshots = []
        if optimizer.confirmed:
            self.observer.after_step(optimizer)
        else:
            self.observer.optimizers.pop(optimizer, None)
            self.objects.pop(id(optimizer.holder), None)

    def record_statements(self) -> None:
        """Record a step if statements have changed parameters since the last backward pass."""
        for optimizer in self.statements:
            pairs = zip(optimizer.parameters, optimizer.snapshots)
            if any(self._is_changed(p, version, values) for p, (version, values) in pairs):
                # `began` was stored after the backward pass. Other optimizers may have taken steps since then, but not
                # inside the step of this optimizer.
                self.observer.state_of(optimizer).began = self.observer.ended_steps
                self.observer.after_step(optimizer)
            optimizer.snapshots = []

    def _is_changed(self, p: Tensor, version: int, values: Tensor) -> bool:
        """Return whether a parameter was changed in place.

        `p.data -= ...` does not change the version, so the values are also compared, but only on the CPU: on another
        device, the comparison would wait for the device.
        """
        if p._version != version:
            return True
        return p.device.type == "cpu" and not torch.equal(self.observer.sample(p), values)


def _holders(frame: Optional[FrameType], parameters: dict[int, Tensor]) -> Iterator[tuple[object, list[Tensor]]]:
    """Yield the objects with a method `step` that hold some of the parameters, and the parameters that they hold.

    The objects are searched among the local variables, and the attributes of `self`, of the frame and its callers.

    Args:
        frame: The frame that calls the backward pass.
        parameters: The parameters that no optimizer holds, by id.
    """
    # The search only reads the local variables of running frames. It never writes them.
    running = set()
    for _ in range(FRAMES):
        if frame is None:
            return
        running.add(frame.f_code)
        values = list(frame.f_locals.values())
        instance = frame.f_locals.get("self")
        values += list(getattr(instance, "__dict__", {}).values())
        for value in values:
            kind = type(value)
            if isinstance(value, (type, nn.Module, torch.optim.Optimizer)) or not callable(getattr(kind, "step", None)):
                continue
            # A running `step` calls the backward pass, so it is a training step, not the step of an optimizer.
            if kind.__module__.split(".")[0] == "torch" or getattr(kind.step, "__code__", None) in running:
                continue
            held = {id(p): parameters[id(p)] for p in _tensors(getattr(value, "__dict__", {})) if id(p) in parameters}
            if held:
                yield value, list(held.values())
        frame = frame.f_back


def _tensors(value: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in nested dictionaries, lists and tuples, at most four levels deep."""
    if isinstance(value, Tensor):
        yield value
    elif depth < 4 and isinstance(value, (dict, list, tuple)) and len(value) < 10_000:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part, depth + 1)


def _wrap_class(kind: Any, observer: Any) -> None:
    """Wrap the methods `step` and `zero_grad` of a class of the script, to record steps of its known instances."""
    original = kind.step
    if getattr(original, "observed", False):
        return

    @frames.wraps(original)
    def step(self: object, *args: object, **kwargs: object) -> object:
        optimizer = observer.updates.objects.get(id(self))
        if optimizer is None or not observer.is_active():
            return original(self, *args, **kwargs)
        with observer.observing("before step"):
            observer.updates.begin_step(optimizer)
        result = original(self, *args, **kwargs)
        with observer.observing("after step"):
            observer.updates.end_step(optimizer)
        observer.end_at_limit()
        return result

    vars(step)["observed"] = True
    kind.step = step
    zero: Optional[Callable[..., object]] = getattr(kind, "zero_grad", None)
    if zero is None:
        return

    @frames.wraps(zero)
    def zero_grad(self: object, *args: object, **kwargs: object) -> object:
        optimizer = observer.updates.objects.get(id(self))
        if optimizer is not None and observer.is_active():
            with observer.observing("zero"):
                observer.add("zero", optimizers=[observer.state_of(optimizer).number], at=observer.at())
        return zero(self, *args, **kwargs)

    kind.zero_grad = zero_grad
