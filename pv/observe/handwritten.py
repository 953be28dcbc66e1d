"""Records handwritten updates of parameters, without a `torch.optim.Optimizer`, as steps of an optimizer.

There are two cases:

1. An object of the script holds the parameters and has a method `step`. Such objects are searched in the frames that
   call the backward pass, and the method is wrapped.
2. Statements of the training loop change the parameters, such as `p.data -= lr * p.grad`. The change is detected at the
   next backward pass, or when gradients are cleared.
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
"""Number of frames of the script that are searched for optimizers."""
SEARCHES = 40
"""Number of first backward passes before which handwritten optimizers and updates by statements are searched."""
COMPARED_PARAMETERS = 4
"""Number of parameters whose values are compared to detect an update."""


class HandWritten:
    """A handwritten optimizer, with the attributes of `torch.optim.Optimizer` that the observer reads.

    Args:
        parameters: The parameters that the optimizer updates.
        holder: The object of the script whose `step` updates the parameters; None for statements of a loop.
    """

    def __init__(self, parameters: list[Tensor], holder: object = None) -> None:
        self.parameters = parameters
        self.holder = holder
        self.kind = "update by hand" if holder is None else type(holder).__name__
        self.snapshots: list[tuple[int, Tensor]] = []
        """Versions and samples of parameters: before a step of an object, or before an update by statements."""
        self.confirmed = False
        """Whether a step has changed parameters."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return one group, in the form of `torch.optim.Optimizer`, with a rate if the object has one."""
        rate = next((getattr(self.holder, name, None) for name in ("lr", "learning_rate") if self.holder), None)
        group: dict[str, Any] = {"params": self.parameters}
        return [{**group, "lr": float(rate)} if isinstance(rate, (int, float)) else group]


class Updates:
    """The handwritten optimizers of one process.

    Args:
        observer: The observer of the process.
    """

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.statements: list[HandWritten] = []
        """The updates by statements."""
        self.objects: dict[int, HandWritten] = {}
        """The optimizers of objects, by id of the object."""
        self.searches = 0
        """Number of searches since the last new model."""
        self.snapshots: dict[int, tuple[int, Tensor, object, int]] = {}
        """State of the parameters that no optimizer holds, after the last backward pass, by id of the parameter.

        The state is the version of the parameter, a sample of its values, a weak reference to its gradient, and the
        version of the gradient.
        """

    def _free_parameters(self) -> list[Tensor]:
        """Return the trainable parameters of models that no optimizer holds."""
        held = {id(p) for o in self.observer.optimizers for group in o.param_groups for p in group["params"]}
        modules = list(self.observer.models)
        return [p for m in modules for p in m.parameters() if p.requires_grad and id(p) not in held]

    def before_backward(self, frame: Optional[FrameType]) -> None:
        """Record an update by statements. In the first backward passes, also search for handwritten optimizers.

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
                hand = self.objects[id(holder)] = HandWritten(held, holder)
                self.observer.state_of(hand)
                _wrap_class(type(holder), self.observer)
        # Statements count only in a script without an optimizer. With an optimizer, they may update codebooks, clamp
        # critics or average weights.
        if len(self.observer.optimizers) > len(self.statements):
            return
        # If a parameter of a model has changed since the last backward pass, all parameters of the model with a
        # gradient belong to one handwritten optimizer. Its next steps are recorded.
        compared = [p for p in self._free_parameters() if id(p) in self.snapshots]
        changed = {id(p) for p in compared if self._is_changed(p, *self.snapshots[id(p)][:2])}
        for module in list(self.observer.models) if changed else ():
            ids = {id(p) for p in module.parameters()}
            if changed & ids:
                hand = HandWritten([p for p in compared if id(p) in ids])
                self.statements.append(hand)
                state = self.observer.state_of(hand)
                state.last_versions = {id(p): self.snapshots[id(p)][2:] for p in hand.parameters}
                changed -= ids

    def after_backward(self) -> None:
        """Store the versions and samples of parameters, to detect later changes."""
        sample = self.observer.sample
        for hand in self.statements:
            hand.snapshots = [(p._version, sample(p).clone()) for p in hand.parameters[:COMPARED_PARAMETERS]]
            self.observer.before_step(hand)
            self.observer.state_of(hand).gradients = self.observer.norm(hand)
        self.snapshots = {}
        for p in self._free_parameters() if self.searches < SEARCHES else ():
            if p.grad is not None:
                self.snapshots[id(p)] = (p._version, sample(p).clone(), weakref.ref(p.grad), p.grad._version)

    def begin_step(self, hand: HandWritten) -> None:
        """Record the state before `step` of a handwritten optimizer."""
        if not hand.confirmed:
            hand.snapshots = [(p._version, self.observer.sample(p).clone()) for p in hand.parameters]
        self.observer.before_step(hand)

    def end_step(self, hand: HandWritten) -> None:
        """Record a step of a handwritten optimizer.

        If the first step changes no parameter, or no parameter has a gradient, the object is not an optimizer and is
        forgotten.
        """
        if not hand.confirmed:
            pairs = list(zip(hand.parameters, hand.snapshots))
            changed = any(self._is_changed(p, version, values) for p, (version, values) in pairs)
            hand.confirmed = changed and any(p.grad is not None for p in hand.parameters)
            hand.snapshots = []
        if hand.confirmed:
            self.observer.after_step(hand)
        else:
            self.observer.optimizers.pop(hand, None)
            self.objects.pop(id(hand.holder), None)

    def record_statements(self) -> None:
        """Record a step if statements have changed parameters since the last backward pass."""
        for hand in self.statements:
            pairs = zip(hand.parameters, hand.snapshots)
            if any(self._is_changed(p, version, values) for p, (version, values) in pairs):
                # The step of this optimizer contains no other step, even if other optimizers took steps in between.
                self.observer.state_of(hand).began = self.observer.ended_steps
                self.observer.after_step(hand)
            hand.snapshots = []

    def _is_changed(self, p: Tensor, version: int, values: Tensor) -> bool:
        """Return whether a parameter was changed in place.

        `p.data -= ...` does not change the version, so values are compared as well, but only on the CPU: elsewhere the
        comparison would wait for the device.
        """
        if p._version != version:
            return True
        return p.device.type == "cpu" and not torch.equal(self.observer.sample(p), values)


def _holders(frame: Optional[FrameType], parameters: dict[int, Tensor]) -> Iterator[tuple[object, list[Tensor]]]:
    """Yield objects with a method `step` that hold some of the parameters, and these parameters.

    The objects are local variables, or attributes of `self`, in the frame and its callers.

    Args:
        frame: The frame that calls the backward pass.
        parameters: The parameters that no optimizer holds, by id.
    """
    # From the caller of `backward` outwards. Locals of running frames are only read, never written.
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
            # A `step` that is running contains the backward pass: it is a training step, not an optimizer step.
            if kind.__module__.split(".")[0] == "torch" or getattr(kind.step, "__code__", None) in running:
                continue
            held = {id(p): parameters[id(p)] for p in _tensors(getattr(value, "__dict__", {})) if id(p) in parameters}
            if held:
                yield value, list(held.values())
        frame = frame.f_back


def _tensors(value: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in nested dictionaries, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif depth < 4 and isinstance(value, (dict, list, tuple)) and len(value) < 10_000:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part, depth + 1)


def _wrap_class(kind: Any, observer: Any) -> None:
    """Wrap `step` and `zero_grad` of a class of the script."""
    original = kind.step
    if getattr(original, "observed", False):
        return

    @frames.wraps(original)
    def step(self: object, *args: object, **kwargs: object) -> object:
        hand = observer.updates.objects.get(id(self))
        if hand is None or not observer.is_active():
            return original(self, *args, **kwargs)
        with observer.observing("before step"):
            observer.updates.begin_step(hand)
        result = original(self, *args, **kwargs)
        with observer.observing("after step"):
            observer.updates.end_step(hand)
        observer.end_at_limit()
        return result

    vars(step)["observed"] = True
    kind.step = step
    zero: Optional[Callable[..., object]] = getattr(kind, "zero_grad", None)
    if zero is None:
        return

    @frames.wraps(zero)
    def zero_grad(self: object, *args: object, **kwargs: object) -> object:
        hand = observer.updates.objects.get(id(self))
        if hand is not None and observer.is_active():
            with observer.observing("zero"):
                observer.add("zero", optimizers=[observer.state_of(hand).number], at=observer.at())
        return zero(self, *args, **kwargs)

    kind.zero_grad = zero_grad
