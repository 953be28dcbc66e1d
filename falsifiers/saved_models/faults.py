"""Wrong versions of public functions: the faults that the contract `saved-models` declares."""

from __future__ import annotations

from typing import Any


def teacher_for_student(original: Any, teacher: Any, student: Any, *rest: Any, **named: Any) -> Any:
    """Evaluate the teacher against the student."""
    return original(student, teacher, *rest, **named)


def never_verified(directory: Any) -> None:
    """Take every model for whole."""


def run_not_followed(paths: Any, given: Any) -> Any:
    """Return the given settings, else the defaults."""
    from reference_trainer import Settings

    return Settings(**given)


def first_unfit_model_ends(original: Any, *given: Any, done: Any = None, unfit: Any = None, **rest: Any) -> Any:
    """Hand over nothing more after a model that does not fit."""
    errors = list[Any]()
    if unfit is None:
        return original(*given, **rest)
    hand_over = {"done": lambda seen: None if errors else done(seen), "unfit": errors.append}
    seen = original(*given, **hand_over, **rest)
    for error in errors[:1]:
        unfit(error)
    return seen
