"""Wrong versions of public functions: the faults that the contract `saved-models` declares."""

from __future__ import annotations

from typing import Any


def teacher_for_student(original: Any, teacher: Any, student: Any, *rest: Any, **named: Any) -> Any:
    """Evaluate the teacher against the student."""
    return original(student, teacher, *rest, **named)


def never_verified(directory: Any) -> None:
    """Take every model for whole."""
