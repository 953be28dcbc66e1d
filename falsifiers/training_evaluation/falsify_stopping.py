"""Attacks on when a run is stopped early. The subject has `EarlyStopping`, as `training.stopping` does."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import Script
from falsifiers.callbacks.real_run import parts, run
from falsifiers.observers.events import context
from falsifiers.support.oracles import assert_refused
from reference_trainer import Action, EarlyStopping, ResumePoint, Settings

# Multiples of a quarter: differences are exact.
JUMPS = st.lists(
    st.integers(-8, 8).map(lambda n: n / 4) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=12
)
DRIFTS = st.lists(st.integers(-1, 1).map(lambda n: n / 8), max_size=12).map(
    lambda gains: [*itertools.accumulate(gains)]
)
"""Values whose gains are smaller than min_delta one by one, but not together."""
VALUES = JUMPS | DRIFTS
RULES = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["min", "max"]),
        "patience": st.integers(1, 4),
        "min_delta": st.sampled_from([0.0, 0.25, 1]),
    }
)
DEFAULTS = {"mode": "min", "patience": 3, "min_delta": 0.0}
SOURCES = {"evaluation": ("on_evaluate", "validation_metrics"), "log": ("on_log", "metrics")}


def stops_at(values: Sequence[float], mode: str, patience: int, min_delta: float) -> int | None:
    """Return the number, from 1, of the value at which a run is stopped: by the values alone, without a memory."""
    signed = [(-value if mode == "min" else value) if math.isfinite(value) else -math.inf for value in values]
    records = [0]  # numbers of the values that improve
    best = -math.inf
    for number, value in enumerate(signed, start=1):
        if value > best + min_delta:
            records.append(number)
            best = value
        if number - records[-1] >= patience:
            return number
    return None


def fed(callback: Any, values: Sequence[float], source: str) -> list[Any]:
    hook, field = SOURCES[source]
    return [getattr(callback, hook)(context(n, **{field: {"it": each, "other": 0.0}})) for n, each in enumerate(values)]


@given(values=VALUES, rules=RULES, source=st.sampled_from(sorted(SOURCES)))
@example(values=[math.nan, 1.0, 1.0, 1.0], rules={"mode": "min", "patience": 2, "min_delta": 0.0}, source="log")
@example(values=[1.0, math.nan, math.nan], rules={"mode": "max", "patience": 2, "min_delta": 0.0}, source="evaluation")
@example(values=[1.0, 0.875, 0.75, 0.625], rules={"mode": "min", "patience": 3, "min_delta": 0.25}, source="log")
def falsify_run_is_stopped_after_the_patience(
    subject: Any, values: list[float], rules: dict[str, Any], source: str
) -> None:
    at = stops_at(values, **rules)
    chosen = {name: value for name, value in rules.items() if value != DEFAULTS[name]}
    seen = fed(subject.EarlyStopping("it", source=source, **chosen), values[:at], source)
    expected = [None] * (len(seen) - (at is not None)) + [Action.STOP] * (at is not None)
    assert seen == expected, f"{rules} of {values[:at]}: the answers are {seen}; expected {expected}"


@given(values=VALUES.filter(bool), rules=RULES, cut=st.integers(1, 12), save_every=st.sampled_from([0, 1, 3]))
def falsify_resumed_run_stops_at_the_same_step(
    subject: Any, values: list[float], rules: dict[str, Any], cut: int, save_every: int
) -> None:
    steps = len(values)
    at = stops_at(values, **rules) or steps
    script, saved = Script(1, steps, None, ((),), every=(0, 1, save_every)), list[Any]()
    given = parts() | {"save": saved.append, "evaluate": _evaluations(values, 0)}
    result = run(subject, script, [EarlyStopping("it", **rules)], given)
    assert result.steps_completed == at, f"{rules} of {values}: the run has {result.steps_completed} steps; not {at}"
    cut = (cut - 1) % at + 1
    given = parts() | {"resume_from": ResumePoint(state=saved[cut - 1]), "evaluate": _evaluations(values, cut)}
    result = run(subject, script, [EarlyStopping("it", **rules)], given)
    steps = result.steps_completed
    assert steps == at, f"{rules} of {values}, resumed at step {cut}: the run has {steps} steps; expected {at}"


def _evaluations(values: list[float], done: int) -> Any:
    left = itertools.islice(values, done, None)
    return lambda: {"it": next(left)}


ARGUMENTS: list[dict[str, Any]] = [
    *({"mode": "least"}, {"source": "training"}),
    *({"patience": wrong} for wrong in (0, 1.0, True, None)),
    *({"min_delta": wrong} for wrong in (-0.1, math.nan)),
]


def falsify_arguments_outside_their_domain_are_refused(subject: Any) -> None:
    unseen = SimpleNamespace(settings=Settings(eval_every=0))
    calls: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
        *(
            (partial(subject.EarlyStopping, "it", **given), (name, repr(value)))
            for given in ARGUMENTS
            for name, value in given.items()
        ),
        *((partial(fed, subject.EarlyStopping("that", source=s), [1.0], s), ("'that'", "it, other")) for s in SOURCES),
        (partial(subject.EarlyStopping("it").attach, unseen), ("'it'",)),
    ]
    for call, words in calls:
        assert_refused(f"{call}", call, *words)
    subject.EarlyStopping("it", source="log").attach(unseen)
