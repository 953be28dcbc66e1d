"""Wrong versions of default parts that are wrong in a resumed run alone. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def another_order(original: Any, self: Any) -> Any:
    """Draw the order of a resumed run from another seed."""
    batches = original(self)
    return replace(batches, seed=batches.seed + (self.settings.resume is not None))


def padded(original: Any, self: Any) -> Any:
    """Give each document of a resumed run a row of its own."""
    if self.settings.documents != "pack" or self.settings.resume is None:
        return original(self)
    self.settings = self.settings.model_copy(update={"documents": "pad"})
    batches = original(self)
    self.settings = self.settings.model_copy(update={"documents": "pack"})
    return batches


def evaluated_on_training_text(original: Any, self: Any) -> Any:
    """Evaluate a resumed run on the text that it trains on."""
    if self.settings.resume is not None:
        self._held_back = self._training
    return original(self)


def student_alone(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Leave projections as they are drawn."""
    drawn = {name: each.clone() for name, each in modules["projections"].state_dict().items()}
    original(saved, modules, optimizer)
    modules["projections"].load_state_dict(drawn)
