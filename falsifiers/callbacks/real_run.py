"""Real runs of the smallest models: tables of logits, recording callbacks, and parts that raise.

The subject has `train` and `Objective`, as `training.loop` does. The models, the schedule and the base class of
callbacks are the trainer's own: they are not under attack.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.callbacks.lifecycle import HOOKS, Script
from reference_trainer import Batch, Callback, RunServices, Schedule
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher, ModuleStudent
from reference_trainer.training.state import state_from_json
from reference_trainer.training.state import state_to_json as saved_text

NAMED = ("learning_rate", "options", "resume_from", "identity")
SETTINGS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}


def _raises(self: Any) -> Any:
    raise RuntimeError("a property was evaluated before the run")


HELPERS = {"step_ends": print, "online": print, "on_gpu": True, "on_disk": None, "on_terminal": property(_raises)}
"""What a callback may have besides its hooks, and is accepted with."""


def recording_callbacks(count: int, act: Callable[[int, str, Any], Any]) -> list[Callback]:
    """Return callbacks whose every hook returns act(callback, event, context)."""

    def hook(event: str) -> Callable[[Any, Any], Any]:
        return lambda self, context: act(self.number, event, context)

    kind = type("Recorder", (Callback,), {**HELPERS, **{event: hook(event) for event in HOOKS}})
    callbacks = [kind() for _ in range(count)]
    for number, callback in enumerate(callbacks):
        callback.number = number
    return callbacks


def after_steps(read: Callable[[Any], Any]) -> tuple[list[Callback], list[Any]]:
    """Return a callback, in a list, and the list to which it adds read(context) after each step."""
    seen: list[Any] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(read(context))

    return recording_callbacks(1, act), seen


def tables(teacher: Tensor, student: Tensor, learning_rate: float = 1.0) -> tuple[FixtureTeacher, FixtureStudent]:
    """Return a teacher and a student that are tables of logits; the student applies its gradient itself."""
    return FixtureTeacher(teacher), FixtureStudent(student, learning_rate)


def module_student(module: nn.Module) -> ModuleStudent:
    """Return a student around a module with a vocabulary of three tokens, whose parameters an optimizer updates."""
    return ModuleStudent(module, 3)


def parts(device: str = "cpu") -> dict[str, Any]:
    """Return the arguments of `train` besides schedule and callbacks: the smallest tables, one repeated batch."""
    start = torch.tensor([[0.0, 1.0], [1.0, 0.0]], device=device)
    teacher, student = tables(-start, start)
    tokens = torch.tensor([[0, 1]], device=device)
    batch = Batch(tokens=tokens, labels=tokens)
    functions = {"batch_at": lambda epoch, k: batch, "learning_rate": lambda step: 0.5}
    return {"teacher": teacher, "student": student, "optimizer": None, **functions}


class Raising:
    """A callable, or an object with a method, that raises `error` when it is called for the n-th time, from 1.

    method: the name of the method; "" for a callable. Other attributes are forwarded to `inner`.
    """

    def __init__(self, inner: Any, method: str, nth: int, error: BaseException) -> None:
        self.inner, self.method, self.nth, self.error = inner, method, nth, error
        self.calls = itertools.count(1)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if next(self.calls) == self.nth:
            raise self.error
        return (getattr(self.inner, self.method) if self.method else self.inner)(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return self if name == self.method else getattr(self.inner, name)


def checkpoint(step: int) -> Path:
    return Path(f"checkpoints/step{step}")


def schedule_of(script: Script) -> Schedule:
    intervals = dict(zip(("log_every", "eval_every", "save_every"), script.every, strict=True))
    micro = {"accumulation": script.accumulation, "micro_batches": script.micro_batches}
    return Schedule(
        epochs=script.epochs, steps_per_epoch=script.steps_per_epoch, limit=script.limit, **micro, **intervals
    )


def run(subject: Any, script: Script, callbacks: Iterable[Any], arguments: dict[str, Any]) -> Any:
    """Train these parts, with an evaluation and checkpoints that write nothing, and return the result.

    arguments: arguments of `train`, and `evaluate`, `save` and `clock` of its services. With `save`, which gets the
    state as a checkpoint has it, each evaluated step is saved too.
    """

    def save(saved: Any) -> Path:
        if "save" in arguments:
            arguments["save"](state_from_json(saved_text(saved.state)))
        return checkpoint(saved.state.position.step)

    positional = [arguments[name] for name in ("teacher", "student", "batch_at", "optimizer")]
    return subject.train(
        *positional,
        schedule=schedule_of(script),
        objective=subject.Objective(**SETTINGS),
        callbacks=callbacks,
        services=RunServices(
            evaluate=arguments.get("evaluate", lambda: {"hard_loss": 2.0}),
            save=lambda saved: save(saved) if saved.due or "save" in arguments else None,
            clock=arguments.get("clock", time.monotonic),
        ),
        **{name: value for name, value in arguments.items() if name in NAMED},
    )
