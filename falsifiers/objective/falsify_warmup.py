"""An attack on the warm-up of weights in a distillation. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.support.small_runs import run, small

NAMES = ("temperature", "ce_weight", "kd_weight", "feature_weight")
STEPS = 3


def _expected(name: str, start: float, end: float | None, warmup: int, step: int) -> float:
    """Return the value of a step of `STEPS`: a rise from 0 to the start, then a line to the end."""
    first = 1 if name == "temperature" or end is None else max(1, warmup)
    if step < first:
        return start * step / first
    return start if end is None else start + (end - start) * (step - first) / max(STEPS - first, 1)


@given(
    starts=st.tuples(*[st.floats(0.25, 4)] * 4),
    ends=st.tuples(*[st.none() | st.floats(0.25, 4)] * 4),
    warmup=st.integers(0, 4),
    to_zero=st.sampled_from([None, *NAMES[1:]]),
    kept=st.sampled_from([None, *NAMES]),
)
def falsify_weights_with_an_end_warm_up(
    subject: Any,
    starts: tuple[float, ...],
    ends: tuple[float | None, ...],
    warmup: int,
    to_zero: str | None,
    kept: str | None,
) -> None:
    """Weights with an end rise from 0 over the warm-up, then go to it; others and the temperature have no warm-up.

    An end that equals the start is an end.
    """
    seen: list[dict[str, float]] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(dict(context.metrics))

    ends = tuple(0.0 if name == to_zero else end for name, end in zip(NAMES, ends, strict=True))
    ends = tuple(start if name == kept else end for name, start, end in zip(NAMES, starts, ends, strict=True))
    given = dict(zip(NAMES, starts, strict=True)) | {f"{n}_end": end for n, end in zip(NAMES, ends, strict=True)}
    with tempfile.TemporaryDirectory() as name:
        settings = small(Path(name), smoke=STEPS, log_every=1, anneal_warmup=warmup, **given)
        run(subject, settings, callbacks=recording_callbacks(1, act))
    for name, start, end in zip(NAMES, starts, ends, strict=True):
        for step, metrics in enumerate(seen, start=1):
            expected = _expected(name, start, end, warmup, step)
            value = metrics.get(name, 0.0 if name == "feature_weight" else math.nan)  # absent where nothing is matched
            assert math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-15), (
                f"{name} from {start} to {end} with a warm-up of {warmup} is {value} in step {step}; "
                f"expected {expected}"
            )
