"""One value of each shape as a function of numbers: the subject that the equations are checked against."""

from reference_trainer.plan.objective import Annealed


def linear(start: float, end: float, warmup: int, step: int, total: int) -> float:
    """Return the value of a step on a line."""
    return Annealed(start, end, "linear", warmup).at(step, total)


def cosine(start: float, end: float, warmup: int, step: int, total: int) -> float:
    """Return the value of a step on half a cosine."""
    return Annealed(start, end, "cosine", warmup).at(step, total)
