"""Contexts of made-up events, observers that record them, and what is logged meanwhile."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from falsifiers.callbacks.lifecycle import HOOKS
from reference_trainer import Context, Observer

SAFETY_S = 5.0
"""A wait this long ends a trial that would hang; no claim depends on it."""
WAIT_S = 0.05
"""How long these runs wait for an observer that does not return."""


def context(step: int, **fields: Any) -> Context:
    counts = dict.fromkeys(("epoch", "tokens", "epochs", "steps_per_epoch", "total_steps"), 1)
    losses = dict.fromkeys(("loss", "best_loss", "learning_rate", "elapsed_s"), 0.5)
    return Context(**{**counts, **losses, "step": step, **fields})


def observer(act: Callable[[str, Context], object], *hooks: str, **attributes: Any) -> Observer:
    """Return an observer whose hooks, by default all, call act(hook, context)."""

    def hook(name: str) -> Callable[[Any, Context], object]:
        return lambda self, context: act(name, context)

    methods = {name: hook(name) for name in hooks or HOOKS}
    watching: Observer = type("Watching", (Observer,), {**methods, **attributes})()
    return watching


class Blocked:
    """A hook that waits, in its first call, until it is released; `released` says whether it was."""

    def __init__(self, patience_s: float = SAFETY_S) -> None:
        self.entered, self.go, self.patience_s = threading.Event(), threading.Event(), patience_s
        self.released: bool | None = None
        self.steps: list[int] = []

    def __call__(self, hook: str, context: Context) -> None:
        if self.released is None:
            self.entered.set()
            self.released = self.go.wait(self.patience_s)
        self.steps.append(context.step)


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """Yield the records that the trainer logs, and keep them from standard error."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, handler = logging.getLogger("reference_trainer"), Keep()
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
