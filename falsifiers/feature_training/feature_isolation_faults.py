"""Wrong versions of feature matching: the faults that the contract declares.

`original` is the replaced function.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def layers_clamped(original: Any, student: Any, teacher: Any, scored: Tensor, layers: Any, **settings: Any) -> Any:
    """Take the last layer for one that does not exist."""
    clamped = [(min(i, len(student) - 1), min(j, len(teacher) - 1)) for i, j in layers]
    return original(student, teacher, scored, layers=clamped, **settings)
