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


def not_clipped(original: Any, *models: Any, **named: Any) -> Any:
    """Clip the steps of the first leg alone."""
    return original(*models, **named | ({"clip": None} if named.get("resumed") is not None else {}))


def student_alone(original: Any, saved: Any, modules: Any, optimizer: Any) -> None:
    """Leave projections as they are drawn."""
    drawn = {name: each.clone() for name, each in modules["projections"].state_dict().items()}
    original(saved, modules, optimizer)
    modules["projections"].load_state_dict(drawn)


def text_not_compared(original: Any, *given: Any) -> Any:
    """Compare everything but the text."""
    return {name: each for name, each in original(*given).items() if name != "data_sha256"}


def evaluated_on_each_rank(original: Any, *given: Any, parallel: Any = None) -> Any:
    """Let every rank evaluate the whole text, which gives the right numbers."""
    return original(*given)


def another_default(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    """Choose ten times the learning rate where none is given."""
    return original({"lr": "0.03", **flags}, environment, config)


def teacher_of_the_held_back_text(original: Any, self: Any) -> Any:
    """Train the teacher on the text that evaluates both models."""
    self._training = self._held_back
    return original(self)


def one_head(width: int) -> int:
    """Give every model one head."""
    return 1


def teacher_as_it_was_saved(original: Any, self: Any) -> Any:
    """Leave the teacher in the dtype of its file."""
    return original(self).float()


def file_unread_by_the_supervisor(original: Any, command: list[str]) -> Any:
    """Read the flags and variables alone."""
    at = command.index("--config") if "--config" in command else len(command)
    return original([*command[:at], *command[at + 2 :]])


def trace_left_out(original: Any, self: Any, contexts: Any) -> Any:
    """Write no trace of a resumed run."""
    written = original(self, contexts)
    return written if self.resuming is None else written[:1]
