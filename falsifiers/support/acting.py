"""Callbacks that act in one of their hooks."""

from collections.abc import Callable
from typing import Any

from reference_trainer.callbacks.base import Callback


def acting(act: Callable[[], Any], hook: str = "on_step_end", step: int | None = None) -> Callback:
    """Return a callback whose hook, by default in every step, answers what `act` returns."""

    def called(self: Any, context: Any) -> Any:
        return act() if step in (None, context.step) else None

    return type("Acting", (Callback,), {hook: called})()
