"""Attacks on objectives, and on the values that change with the steps."""

import math
from functools import partial
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import after_steps
from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher
from reference_trainer.plan.objective import Annealed
from reference_trainer.plan.schedule import Schedule

TEACHER, STUDENT = (2.0, 0.0, -1.0), (-1.0, 0.5, 1.0)
LABEL, CLOSE = 2, 1e-12
NUMBERS = st.floats(0.25, 4)
NAMES = ("temperature", "ce_weight", "kd_weight")


def _trained(
    subject: Any, objective: Any, epochs: int, steps: int, limit: int | None = None, accumulation: int = 1
) -> list[dict[str, float]]:
    """Return the metrics of each step of a run whose student never changes: one scored token, one label."""
    callbacks, seen = after_steps(lambda context: dict(context.metrics))
    tokens = torch.tensor([[0, LABEL]])
    subject.train(
        FixtureTeacher(torch.tensor([TEACHER] * 3, dtype=torch.float64)),
        FixtureStudent(torch.tensor([STUDENT] * 3, dtype=torch.float64), 0.0),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        None,
        schedule=Schedule(epochs=epochs, steps_per_epoch=steps, limit=limit, log_every=1, accumulation=accumulation),
        objective=objective,
        learning_rate=lambda step: 0.0,
        callbacks=callbacks,
    )
    return seen


def _line(start: float, end: float, step: int, total: int) -> float:
    return start + (end - start) * (step - 1) / max(total - 1, 1)


@given(
    ends=st.tuples(*[st.tuples(NUMBERS, NUMBERS)] * 3),
    annealed=st.sets(st.sampled_from(NAMES)),
    epochs=st.integers(1, 3),
    steps=st.integers(1, 4),
    limit=st.none() | st.integers(1, 4),
    accumulation=st.integers(1, 3),
)
def falsify_each_value_follows_its_schedule(
    subject: Any,
    ends: tuple[tuple[float, float], ...],
    annealed: set[str],
    epochs: int,
    steps: int,
    limit: int | None,
    accumulation: int,
) -> None:
    pairs = dict(zip(NAMES, ends, strict=True))
    given = {n: Annealed(*pair, "linear", name=n) if n in annealed else pair[0] for n, pair in pairs.items()}
    seen = _trained(subject, subject.Objective(**given), epochs, steps, limit, accumulation)
    for step, metrics in enumerate(seen, start=1):
        now = {n: _line(*pair, step, epochs * steps) if n in annealed else pair[0] for n, pair in pairs.items()}
        tau = now["temperature"]
        hard, soft = oracles.cross_entropy(STUDENT, LABEL), tau**2 * oracles.forward_kl(STUDENT, TEACHER, tau)
        expected = {**now, "loss": now["ce_weight"] * hard + now["kd_weight"] * soft, "soft_loss": soft}
        for name, value in expected.items():
            assert math.isclose(metrics[name], value, rel_tol=CLOSE), (
                f"step {step} of {epochs * steps}: {name} is {metrics[name]}; expected {value}"
            )


@given(name=st.sampled_from(sorted(divergence_oracles.DIVERGENCES)), beta=st.floats(0.05, 0.95), tau=NUMBERS)
def falsify_the_divergence_is_the_chosen_one(subject: Any, name: str, beta: float, tau: float) -> None:
    objective = subject.Objective(temperature=tau, ce_weight=0.0, kd_weight=1.0, divergence=name, beta=beta)
    (metrics,) = _trained(subject, objective, 1, 1)
    expected = {
        "soft_loss": tau**2 * divergence_oracles.row_divergence(STUDENT, TEACHER, tau, name, beta),
        "kl_at_T": oracles.forward_kl(STUDENT, TEACHER, tau),
        "kl_at_1": oracles.forward_kl(STUDENT, TEACHER, 1.0),
    }
    for each, value in expected.items():
        assert math.isclose(metrics[each], value, rel_tol=1e-9), f"{name}: {each} is {metrics[each]}; expected {value}"


WARMED = ("temperature", "ce_weight", "kd_weight", "feature_weight")
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
    to_zero=st.sampled_from([None, *WARMED[1:]]),
    kept=st.sampled_from([None, *WARMED]),
)
def falsify_weights_with_an_end_warm_up(
    subject: Any,
    starts: tuple[float, ...],
    ends: tuple[float | None, ...],
    warmup: int,
    to_zero: str | None,
    kept: str | None,
) -> None:
    callbacks, seen = after_steps(lambda context: dict(context.metrics))
    ends = tuple(0.0 if name == to_zero else end for name, end in zip(WARMED, ends, strict=True))
    ends = tuple(start if name == kept else end for name, start, end in zip(WARMED, starts, ends, strict=True))
    given = dict(zip(WARMED, starts, strict=True)) | {f"{n}_end": end for n, end in zip(WARMED, ends, strict=True)}
    with scratch() as root:
        settings = small(root, smoke=STEPS, log_every=1, anneal_warmup=warmup, **given)
        run(subject, settings, callbacks=callbacks)
    for name, start, end in zip(WARMED, starts, ends, strict=True):
        for step, metrics in enumerate(seen, start=1):
            expected = _expected(name, start, end, warmup, step)
            value = metrics.get(name, 0.0 if name == "feature_weight" else math.nan)  # absent where nothing is matched
            assert math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-15), (
                f"{name} from {start} to {end} with a warm-up of {warmup} is {value} in step {step}; "
                f"expected {expected}"
            )


RATES = st.sampled_from([0.0, 1, 0.1, 0.2, 0.9, 0.7, 4.0, 1e-4, 1e30]) | st.floats(0, 1e4)
CHANGING = st.sampled_from(["linear", "cosine"])
TOTALS = st.sampled_from([1, 2, 3, 10]) | st.integers(1, 10**6)


@example(start=0.0, end=1.0, shape="linear", total=3)
@given(start=RATES, end=st.none() | RATES, shape=CHANGING, total=TOTALS)
def falsify_zero_is_seen_before_the_run(subject: Any, start: float, end: float | None, shape: str, total: int) -> None:
    annealed = subject.Annealed(start) if end is None else subject.Annealed(start, end, shape)
    values = {annealed.at(step, total + 1) for step in (1, total + 1)}
    assert annealed.is_zero is (values == {0.0}), f"is_zero is {annealed.is_zero} with values {values}, for {annealed}"


TEMPERATURES = (1e-4, 1e4)
LINE = {"end": 0.5, "shape": "linear"}
REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    *(({"end": 0.0, "shape": shape}, (repr(shape), "constant", "linear", "cosine")) for shape in ("Linear", None)),
    *(({"shape": shape}, ("missing end", shape)) for shape in ("linear", "cosine")),
    ({"end": 0.5}, ("constant", "0.5")),
    *(
        ({**LINE, place: x}, (place, repr(x), "0 to 1e+30"))
        for place in ("start", "end")
        for x in (math.nan, math.inf, True, "0.5", -1.0)
    ),
    *(
        ({"start": 2.0, **LINE, "bounds": TEMPERATURES, place: x}, (place, repr(x), "0.0001 to 10000"))
        for place in ("start", "end")
        for x in (0.0, 10001.0)
    ),
    *(({"warmup": x}, ("warm-up", repr(x))) for x in (-1, 2.0, True)),
    ({"start": 2.0, "warmup": 1, "bounds": TEMPERATURES}, ("warm-up", "rises from 0")),
]
ACCEPTED: list[dict[str, Any]] = [
    {"start": 0.0, "end": 1e30, "shape": "cosine", "warmup": 10**9},
    {"start": 1e-4, "end": 1e4, "shape": "linear", "bounds": TEMPERATURES},
]


def falsify_invalid_values_are_refused(subject: Any) -> None:
    for changes, words in REFUSED:
        given = {"start": 0.7, "name": "beta", **changes}
        assert_refused(f"{changes}", lambda given=given: subject.Annealed(**given), "'beta'", *words)
    for given in ACCEPTED:
        subject.Annealed(**given)
    for step, total in ((0, 10), (1, 0)):
        what, at = f"step {step} of {total}", subject.Annealed(1.0, 0.0, "linear").at
        assert_refused(what, partial(at, step, total), str(step), str(total), "from 1")
