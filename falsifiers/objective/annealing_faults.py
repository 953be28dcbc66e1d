"""Wrong versions of a value that changes during a run: the faults that the contract declares.

`original` is the replaced method.
"""

from __future__ import annotations

from typing import Any


def counted_from_zero(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Divide the step by the number of steps, as if steps counted from 0."""
    return original(annealed, step, total + 1)


def shape_unchecked(original: Any, annealed: Any) -> None:
    """Accept every shape, with and without an end, and treat what does not fit as constant."""
    try:
        original(annealed)
    except ValueError as error:
        if "shape" not in str(error):
            raise


def zero_at_the_start(original: Any, annealed: Any) -> bool:
    """Decide by the start alone that a term is never needed."""
    return bool(annealed.start == 0)
