"""Attacks on the contexts of a resumed run. The subject is that of `real_run`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from falsifiers.callbacks.falsify_within_steps import Checkpoint, Run, runs
from falsifiers.callbacks.lifecycle import Script

FIELDS = ("hook", "step", "epoch", "micro_batch", "learning_rate", "loss", "best_loss", "tokens", "sequences")


def _known(context: Any) -> dict[str, Any]:
    """Return the fields of a context that neither a clock nor the place of a file decides."""
    metrics = {name: value for name, value in context.metrics.items() if not name.endswith("_per_s")}
    own = {name: getattr(context, name) for name in FIELDS}
    return own | {"metrics": metrics, "validation_metrics": dict(context.validation_metrics)}


def _saved(subject: Any, drawn: Any, at: int) -> tuple[Run, Checkpoint]:
    """Return a run that was not cut, and one of its checkpoints."""
    straight = Run(subject, *drawn)
    assume(straight.saved)
    return straight, straight.saved[at % len(straight.saved)]


EVERY = st.tuples(*[st.integers(0, 3)] * 2)


@given(drawn=runs(), at=st.integers(0, 5), before=EVERY, after=EVERY)
@example(drawn=(Script(1, 3, None, ((),)), [((0, 1), (1, 2))], None), at=2, before=(2, 2), after=(1, 3))
def falsify_metrics_are_those_of_their_step(
    subject: Any, drawn: Any, at: int, before: tuple[int, int], after: tuple[int, int]
) -> None:
    script, *others = drawn
    script = replace(script, every=(*before, 1))
    straight, saved = _saved(subject, (script, *others), at)
    other = replace(script, every=(*after, 1))
    _, (seen, *_), *_ = Run(subject, other, *others, resumed=saved).seen
    wanted, *_ = straight.seen[saved.seen + 1]
    got, expected = ((_known(each)["metrics"], dict(each.validation_metrics)) for each in (seen, wanted))
    when = f"logged and evaluated every {before} steps, then every {after}"
    assert got == expected, f"{when}, {seen.hook} of step {seen.step} has {got}; expected {expected}"


@given(drawn=runs(), at=st.integers(0, 5))
def falsify_resumed_hooks_report_the_same(subject: Any, drawn: Any, at: int) -> None:
    straight, saved = _saved(subject, drawn, at)
    begin, *resumed = Run(subject, *drawn, resumed=saved).seen
    step, rate = saved.state.position.step, begin[0].learning_rate
    assert rate == 0.1 / step, f"resumed after step {step}, on_train_begin has the rate {rate}; expected {0.1 / step}"
    expected = straight.seen[saved.seen + 1 :]
    assert len(resumed) == len(expected), f"resumed after step {step}: {len(resumed)} events; expected {len(expected)}"
    for (seen, *_), (wanted, *_) in zip(resumed, expected, strict=True):
        what = f"resumed after step {step}, {seen.hook} of step {seen.step}"
        assert _known(seen) == _known(wanted), f"{what} has {_known(seen)}; expected {_known(wanted)}"
