"""Observes updates of parameters that no `torch.optim.Optimizer` makes, as steps of an optimizer.

Either an object of the script has a method `step` and keeps the parameters: it is looked for in the frames that call
the backward pass, and the method is wrapped. Or statements of the loop change them: that is noticed at the next
backward pass, or when gradients are cleared.
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
"""Frames of the script in which an optimizer is looked for."""
SEARCHES = 40
"""Backward passes before which it is looked for, and after which updates by statements are."""
COMPARED = 4
"""Parameters whose values tell whether an update has come, where no version counter does."""


class HandWritten:
    """Stands for an optimizer of the script, with the attributes of `torch.optim.Optimizer` that the observer reads.

    Args:
        parameters: What it updates.
        holder: The object of the script whose `step` updates them; None for statements of a loop.
    """

    def __init__(self, parameters: list[Tensor], holder: object = None) -> None:
        self.parameters = parameters
        self.holder = holder
        self.kind = "update by hand" if holder is None else type(holder).__name__
        self.seen: list[tuple[int, Tensor]] = []
        """Versions and samples of parameters before a step, or for statements, after the last backward pass."""
        self.confirmed = False
        """Whether a step has changed parameters."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return one group, in the form of `torch.optim.Optimizer`, with a rate if the object has one."""
        rate = next((getattr(self.holder, name, None) for name in ("lr", "learning_rate") if self.holder), None)
        group: dict[str, Any] = {"params": self.parameters}
        return [{**group, "lr": float(rate)} if isinstance(rate, (int, float)) else group]


class Updates:
    """The hand-written optimizers of one process.

    Args:
        observer: The observer of the process.
    """

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.statements: list[HandWritten] = []
        self.objects: dict[int, HandWritten] = {}
        """By id of the object."""
        self.searches = 0
        self.waiting: dict[int, tuple[int, Tensor, object, int]] = {}
        """By id of a parameter that no optimizer holds, after the last backward pass: its version, a sample of it, its
        gradient (a weak reference), and the gradient's version."""

    def _not_held(self) -> list[Tensor]:
        held = {id(p) for o in self.observer.optimizers for group in o.param_groups for p in group["params"]}
        modules = list(self.observer.models)
        return [p for m in modules for p in m.parameters() if p.requires_grad and id(p) not in held]

    def before_backward(self, frame: Optional[FrameType]) -> None:
        """Note an update by statements; look for optimizers of the script in the first backward passes of a model."""
        self.note()
        if self.searches >= SEARCHES:
            return
        self.searches += 1
        parameters = self._not_held()
        for holder, mine in _holders(frame, {id(p): p for p in parameters}) if parameters else ():
            if id(holder) not in self.objects:
                hand = self.objects[id(holder)] = HandWritten(mine, holder)
                self.observer.state_of(hand)
                _wrap_class(type(holder), self.observer)
        # Statements count only in a script without an optimizer.
        if len(self.observer.optimizers) > len(self.statements):
            return  # beside an optimizer, statements also change codebooks, clamp critics, or average weights
        waiting = [p for p in self._not_held() if id(p) in self.waiting]
        moved = {id(p) for p in waiting if self._is_changed(p, *self.waiting[id(p)][:2])}
        for module in list(self.observer.models) if moved else ():
            ids = {id(p) for p in module.parameters()}
            mine = [p for p in waiting if id(p) in ids]
            if moved & ids and mine:
                hand = HandWritten(mine)
                self.statements.append(hand)
                state = self.observer.state_of(hand)
                state.last_look = {id(p): self.waiting[id(p)][2:] for p in mine}
                moved -= ids

    def after_backward(self) -> None:
        """Remember the parameters, so that the next look shows whether they were changed."""
        sample = self.observer.sample
        for hand in self.statements:
            hand.seen = [(p._version, sample(p).clone()) for p in hand.parameters[:COMPARED]]
            self.observer.before_step(hand)
            self.observer.state_of(hand).gradients = self.observer.norm(hand)
        self.waiting = {}
        for p in self._not_held() if self.searches < SEARCHES else ():
            if p.grad is not None:
                self.waiting[id(p)] = (p._version, sample(p).clone(), weakref.ref(p.grad), p.grad._version)

    def begin_step(self, hand: HandWritten) -> None:
        """Note that `step` of an object of the script begins."""
        if not hand.confirmed:
            hand.seen = [(p._version, self.observer.sample(p).clone()) for p in hand.parameters]
        self.observer.before_step(hand)

    def end_step(self, hand: HandWritten) -> None:
        """Note a step of an object of the script; one whose first step changes or reads nothing is no optimizer."""
        if not hand.confirmed:
            pairs = list(zip(hand.parameters, hand.seen))
            changed = any(self._is_changed(p, version, values) for p, (version, values) in pairs)
            hand.confirmed = changed and any(p.grad is not None for p in hand.parameters)
            hand.seen = []
        if hand.confirmed:
            self.observer.after_step(hand)
        else:
            self.observer.optimizers.pop(hand, None)
            self.objects.pop(id(hand.holder), None)

    def note(self) -> None:
        """Note a step, if statements have changed parameters since the last backward pass."""
        for hand in self.statements:
            pairs = zip(hand.parameters, hand.seen)
            if any(self._is_changed(p, version, values) for p, (version, values) in pairs):
                # Steps of other optimizers since the backward pass were not taken inside this one.
                self.observer.state_of(hand).began = self.observer.ended_steps
                self.observer.after_step(hand)
            hand.seen = []

    def _is_changed(self, p: Tensor, version: int, values: Tensor) -> bool:
        """Return whether a parameter was changed in place.

        `p.data -= ...` counts no version. Values are only compared where the host need not wait for a device.
        """
        if p._version != version:
            return True
        return p.device.type == "cpu" and not torch.equal(self.observer.sample(p), values)


def _holders(frame: Optional[FrameType], parameters: dict[int, Tensor]) -> Iterator[tuple[object, list[Tensor]]]:
    """Yield objects with a method `step` that keep some of these parameters, in frames or in the `self` of a frame."""
    # From the caller of `backward` outwards. Locals of a running frame are read, never written.
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
            # A `step` that contains the backward pass, such as the step of a trainer, is more than an update.
            if kind.__module__.split(".")[0] == "torch" or getattr(kind.step, "__code__", None) in running:
                continue
            mine = {id(p): parameters[id(p)] for p in _tensors(getattr(value, "__dict__", {})) if id(p) in parameters}
            if mine:
                yield value, list(mine.values())
        frame = frame.f_back


def _tensors(value: object, depth: int = 0) -> Iterator[Tensor]:
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
