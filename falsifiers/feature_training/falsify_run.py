"""Attacks on runs that match hidden states: the metric that callbacks receive, and its weight in each step.

The subject has `train` and `Objective`, as `training.loop` does. The student never changes, so every step is known.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.support.windows import V
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.plan.annealing import Annealed
from reference_trainer.plan.schedule import Schedule


def _metrics(
    subject: Any, window: FeatureWindow, weight: float | Annealed, every: int, device: str = "cpu"
) -> list[dict[str, float]]:
    """Return the metrics of each logged step of a run that takes each micro-batch in a step of its own."""
    seen: list[dict[str, float]] = []

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end" and context.metrics:
            seen.append(dict(context.metrics))

    batches, weights = window.case.batches(device=device), window.case.weights
    subject.train(
        window.teacher(device),
        ModuleStudent(window.student(device), V),
        lambda epoch, k: batches[k - 1],
        None,
        schedule=Schedule(epochs=1, steps_per_epoch=len(batches), log_every=every),
        objective=subject.Objective(
            temperature=weights.temperature,
            ce_weight=weights.ce_weight,
            kd_weight=weights.kd_weight,
            feature_weight=weight,
        ),
        learning_rate=lambda step: 0.0,
        callbacks=recording_callbacks(1, act),
        features=window.matching(device),
    )
    return seen


@given(window=feature_windows())
def falsify_the_metric_is_a_mean_over_tokens(subject: Any, device: str, window: FeatureWindow) -> None:
    assume(window.case.count())
    steps = len(window.case.split[0])
    (metrics,) = _metrics(subject, window, window.feature_weight, steps, device)
    expected = window.feature_sum() / window.case.count()
    assert "feature" in metrics, f"the metrics of {steps} steps are {sorted(metrics)}; expected a feature too"
    assert math.isclose(metrics["feature"], expected, rel_tol=1e-12, abs_tol=1e-14), (
        f"the feature of {steps} steps is {metrics['feature']!r}; expected {expected!r}, a mean over scored tokens"
    )
    assert metrics["feature_weight"] == window.feature_weight, f"feature_weight is {metrics['feature_weight']}"


@given(window=feature_windows(), end=st.floats(0.25, 4))
def falsify_the_weight_follows_its_schedule(subject: Any, window: FeatureWindow, end: float) -> None:
    start, steps = window.feature_weight, len(window.case.split[0])
    for ends in ((start, end), (0.0, end), (0.0, 0.0)):
        weight = Annealed(*ends, "linear", name="feature_weight")
        for step, metrics in enumerate(_metrics(subject, window, weight, 1), start=1):
            now = ends[0] + (ends[1] - ends[0]) * (step - 1) / max(steps - 1, 1)
            what = f"step {step} of {steps}, weight from {ends[0]} to {ends[1]}"
            if now == 0 or "loss" not in metrics:
                assert "feature" not in metrics, f"{what}: metrics are {sorted(metrics)}; expected no feature"
                assert ("feature_weight" in metrics) == (now > 0), f"{what}: metrics are {sorted(metrics)}"
                continue
            both = window.case.ce_weight * metrics["hard_loss"] + window.case.kd_weight * metrics["soft_loss"]
            expected = both + now * metrics["feature"]
            assert math.isclose(metrics["feature_weight"], now, rel_tol=1e-12), f"{what} is {metrics['feature_weight']}"
            assert math.isclose(metrics["loss"], expected, rel_tol=1e-12, abs_tol=1e-12), (
                f"{what}: the loss is {metrics['loss']}; expected {expected}"
            )
