"""Attacks on the objective of a run: its values in each step, its warm-up, and its divergence."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher
from reference_trainer.plan.annealing import Annealed
from reference_trainer.plan.schedule import Schedule

TEACHER, STUDENT = (2.0, 0.0, -1.0), (-1.0, 0.5, 1.0)
LABEL, CLOSE = 2, 1e-12
NUMBERS = st.floats(0.25, 4)
NAMES = ("temperature", "ce_weight", "kd_weight")


def _trained(
    subject: Any, objective: Any, epochs: int, steps: int, limit: int | None = None, accumulation: int = 1
) -> list[dict[str, float]]:
    """Return the metrics of each step of a run whose student never changes: one scored token, one label."""
    seen: list[dict[str, float]] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(dict(context.metrics))

    tokens = torch.tensor([[0, LABEL]])
    subject.train(
        FixtureTeacher(torch.tensor([TEACHER] * 3, dtype=torch.float64)),
        FixtureStudent(torch.tensor([STUDENT] * 3, dtype=torch.float64), 0.0),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        None,
        schedule=Schedule(epochs=epochs, steps_per_epoch=steps, limit=limit, log_every=1, accumulation=accumulation),
        objective=objective,
        learning_rate=lambda step: 0.0,
        callbacks=recording_callbacks(1, act),
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
    seen: list[dict[str, float]] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(dict(context.metrics))

    ends = tuple(0.0 if name == to_zero else end for name, end in zip(WARMED, ends, strict=True))
    ends = tuple(start if name == kept else end for name, start, end in zip(WARMED, starts, ends, strict=True))
    given = dict(zip(WARMED, starts, strict=True)) | {f"{n}_end": end for n, end in zip(WARMED, ends, strict=True)}
    with scratch() as root:
        settings = small(root, smoke=STEPS, log_every=1, anneal_warmup=warmup, **given)
        run(subject, settings, callbacks=recording_callbacks(1, act))
    for name, start, end in zip(WARMED, starts, ends, strict=True):
        for step, metrics in enumerate(seen, start=1):
            expected = _expected(name, start, end, warmup, step)
            value = metrics.get(name, 0.0 if name == "feature_weight" else math.nan)  # absent where nothing is matched
            assert math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-15), (
                f"{name} from {start} to {end} with a warm-up of {warmup} is {value} in step {step}; "
                f"expected {expected}"
            )
