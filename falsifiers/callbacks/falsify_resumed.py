"""Attacks on the contexts of a resumed run. The subject is that of `real_run`."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.callbacks.falsify_within_steps import Run, runs

FIELDS = ("hook", "step", "epoch", "micro_batch", "learning_rate", "loss", "best_loss", "tokens", "sequences")


def _known(context: Any) -> dict[str, Any]:
    """Return the fields of a context that neither a clock nor the place of a file decides."""
    metrics = {name: value for name, value in context.metrics.items() if not name.endswith("_per_s")}
    own = {name: getattr(context, name) for name in FIELDS}
    return own | {"metrics": metrics, "validation_metrics": dict(context.validation_metrics)}


@given(drawn=runs(), at=st.integers(0, 5))
def falsify_resumed_hooks_report_the_same(subject: Any, drawn: Any, at: int) -> None:
    straight = Run(subject, *drawn)
    assume(straight.saved)
    saved = straight.saved[at % len(straight.saved)]
    begin, *resumed = Run(subject, *drawn, resumed=saved).seen
    step, rate = saved.state.position.step, begin[0].learning_rate
    assert rate == 0.1 / step, f"resumed after step {step}, on_train_begin has the rate {rate}; expected {0.1 / step}"
    expected = straight.seen[saved.seen + 1 :]
    assert len(resumed) == len(expected), f"resumed after step {step}: {len(resumed)} events; expected {len(expected)}"
    for (seen, *_), (wanted, *_) in zip(resumed, expected, strict=True):
        what = f"resumed after step {step}, {seen.hook} of step {seen.step}"
        assert _known(seen) == _known(wanted), f"{what} has {_known(seen)}; expected {_known(wanted)}"
