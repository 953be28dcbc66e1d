"""Attacks on the result, metrics and refusals of a distillation step."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.cases import IGNORED, KdCase, StepCase, step_cases
from falsifiers.support.steps import USUAL, ZEROS, RecordingStudent, assert_step_refused, recorded_step, table_step


@given(case=step_cases())
def falsify_metrics_are_sums_with_counts(subject: Any, device: str, case: StepCase) -> None:
    result, _ = recorded_step(subject, case, device)
    expected = _expected(case.shifted())
    assert result.metrics.keys() == expected.keys(), f"metrics are {sorted(result.metrics)}; expected {list(expected)}"
    for name, (wanted, allowed, formula) in expected.items():
        metric = result.metrics[name]
        oracles.assert_close(f"{name} sum", metric.sum, wanted, allowed, formula)
        assert metric.count == result.count, f"count of {name} is {metric.count}; expected {result.count}"


def _expected(case: KdCase) -> dict[str, tuple[float, float, str]]:
    """Return each metric's sum, the largest rounding error, and the formula."""
    hard, soft = case.but(ce_weight=1.0, kd_weight=0.0), case.but(ce_weight=0.0, kd_weight=1.0)
    entropies, same = list[float](), 0
    for _, student, teacher, _ in case.rows():
        entropies.append(-math.fsum(math.exp(x) * x for x in oracles.log_softmax(teacher)))
        same += student.index(max(student)) == teacher.index(max(teacher))
    return {
        "hard_loss": _of(hard, "-log softmax(s)[y]"),
        "soft_loss": _of(soft, "τ²·KL(teacher ‖ student) at τ"),
        "kl_at_T": _of(soft, "KL(teacher ‖ student) at τ, without τ²", case.temperature**2),
        "kl_at_1": _of(soft.but(temperature=1.0), "KL(teacher ‖ student) at temperature 1"),
        "teacher_loss": _of(hard.but(student=case.teacher), "-log softmax(t)[y]"),
        "teacher_entropy": (math.fsum(entropies), 1e-13 * len(entropies), "-Σ softmax(t)·log softmax(t)"),
        "agreement": (same, 0.0, "rows whose first largest logit is that of the same token"),
    }


def _of(case: KdCase, formula: str, divisor: float = 1.0) -> tuple[float, float, str]:
    return case.oracle_nats() / divisor, 2 * case.allowed_nats() / divisor, formula


@given(
    shape=st.sampled_from([(1, 1), (2, 3), (0, 3), (2, 0), (1, 2)]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]),
    scored_first=st.booleans(),
)
def falsify_step_with_nothing_scored(
    subject: Any, device: str, shape: tuple[int, int], weights: tuple[float, float], scored_first: bool
) -> None:
    # The label of the first token is the target of no logits.
    labels = torch.full(shape, IGNORED)
    if scored_first:
        labels[:, :1] = 1
    table = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    case = StepCase(torch.ones(shape, dtype=torch.int64), labels, table, table.flip(0), 2.0, *weights)
    result, gradient = recorded_step(subject, case, device)
    assert result.loss is None, f"the loss is {result.loss} with no scored token; expected None"
    assert (result.sum, result.count, dict(result.metrics)) == (0.0, 0, {}), f"nothing is scored: {result}"
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} with no scored token; expected zeros"
    _, after = table_step(subject, case, 1.0, device)
    assert torch.equal(after, table), f"the table changed to {after.tolist()} with no scored token"


RIGHT = torch.tensor([[0, 1, 1]])


INVALID_STEPS: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
    ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), RIGHT, RIGHT, USUAL, ("student 2", "teacher 3")),
    ("a token without a row", ZEROS, torch.tensor([[0, 2, 1]]), RIGHT, USUAL, ("token 2",)),
    ("a label outside", ZEROS, RIGHT, torch.tensor([[0, 1, 2]]), USUAL, ("label 2",)),
    ("temperature 0", ZEROS, RIGHT, RIGHT, {**USUAL, "temperature": 0.0}, ("temperature",)),
    ("a negative weight", ZEROS, RIGHT, RIGHT, {**USUAL, "kd_weight": -1.0}, ("kd_weight",)),
]


PARTS: list[tuple[str, Callable[[Any], Any], tuple[str, ...]]] = [
    ("labels of another shape", lambda s: s.Batch(tokens=RIGHT, labels=RIGHT[:, 1:]), ("labels", "[1, 2]")),
    ("labels that are floats", lambda s: s.Batch(tokens=RIGHT, labels=RIGHT.double()), ("labels of", "float64")),
    ("tokens that are floats", lambda s: s.Batch(tokens=RIGHT.double(), labels=RIGHT), ("tokens", "float64")),
    ("tokens without a batch axis", lambda s: s.Batch(tokens=RIGHT[0], labels=RIGHT[0]), ("tokens", "[3]")),
]


def falsify_invalid_steps_are_refused(subject: Any) -> None:
    for what, table, tokens, labels, settings, words in INVALID_STEPS:
        student, batch = RecordingStudent(ZEROS), subject.Batch(tokens=tokens, labels=labels)
        assert_step_refused(subject, what, subject.FixtureTeacher(table), student, batch, settings, words)
        early = "vocabulary" not in what or not student.passes
        assert early, f"{what}: the student ran its forward, although the vocab_size of the two models differ"
    for what, call, words in PARTS:
        oracles.assert_refused(what, functools.partial(call, subject), *words)
