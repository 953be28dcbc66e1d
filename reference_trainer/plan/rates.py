"""The learning rate of a step, as a pure function. Steps count from 1.

    warm-up     peak * step / warmup, up to step `warmup`, which has exactly the peak
    afterwards  peak * (end + (1 - end) * shape(p)), with p from 0 in step `warmup` to 1 in step `total`

    cosine      (1 + cos(pi * p)) / 2
    linear      1 - p
    constant    1
    wsd         1 up to step `total - decay`, then 1 - p, with p from 0 in that step to 1 in step `total`

So step `total` has exactly `end` times the peak, except for `constant` or if it still is in the warm-up. Later steps
have the rate of step `total`, unless the warm-up has `total` steps or more.

Sources: Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts, for the cosine; Hu et al. 2024,
arXiv:2404.06395, section 4, for warm-up, stable and decay (wsd), here with a linear decay; Haegele et al. 2024,
arXiv:2405.18392, for the length of this decay, a fifth of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

END = 0.1
"""Default rate of the last step, as a fraction of the peak."""
SHAPES: Mapping[str, Callable[[float], float]] = {  # shape(p), see the docstring of the module
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,
    "linear": lambda p: 1 - p,
    "constant": lambda p: 1.0,
    "wsd": lambda p: 1 - p,
}


def warmup_steps(warmup: float, planned: int) -> int:
    """Return the number of warm-up steps: `warmup` itself if it is an integer, else `warmup * planned`, rounded up."""
    return warmup if isinstance(warmup, int) else math.ceil(warmup * planned)


def learning_rate(
    step: int,
    *,
    peak: float,
    warmup: int,
    total: int,
    shape: str = "cosine",
    end: float = END,
    decay: int | None = None,
) -> float:
    """Return the learning rate of a step.

    Args:
        step: The step, from 1.
        peak: The largest rate.
        warmup: Number of warm-up steps.
        total: Number of steps of the schedule.
        shape: A name in `SHAPES`.
        end: The rate of step `total` as a fraction of the peak.
        decay: Number of steps of the decay of `wsd`, by default a fifth of `total`, rounded up. The decay begins at
            the end of the warm-up at the earliest.

    Returns:
        The rate, in the unit of `peak`.
    """
    if step < warmup:
        return peak * step / warmup
    begin = warmup  # the step with p = 0
    if shape == "wsd":
        begin = max(warmup, total - (-(-total // 5) if decay is None else decay))
    # max(1, ...) avoids a division by 0 if the warm-up has as many steps as the schedule.
    progress = min(1.0, max(0, step - begin) / max(1, total - begin))
    return peak * (end + (1 - end) * SHAPES[shape](progress))
