"""Adapters of the suite: objects with `run(job) -> Report`."""

from typing import Any

from pv.suites.training_loop.job import Trainer


def adapted(subject: Any) -> Trainer:
    """Return the adapter of a subject: itself, or an instance of its class."""
    trainer: Trainer = subject() if isinstance(subject, type) else subject
    return trainer
