"""Attacks on the gradient that a step gives the student, and on the descent that follows."""

import itertools
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.cases import (
    HALVES,
    IGNORED,
    LOGITS,
    POSITIVE_WEIGHTS,
    StepCase,
    assert_same_gradient,
    step_cases,
    tensors,
)
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.steps import (
    SHIFTED,
    STEP,
    allowed_table,
    assert_result_is_the_oracles,
    batch_of,
    embedding,
    recorded_step,
    table_step,
)

NARROW = st.sampled_from([torch.float32, torch.bfloat16])
DTYPES = st.just((torch.float64, torch.float64)) | st.tuples(NARROW, NARROW)


@given(case=step_cases(logits=LOGITS.map(lambda x: float(np.float32(x)))), dtypes=DTYPES)
def falsify_step_against_oracle(
    subject: Any, device: str, case: StepCase, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    """dtypes: of the student and the teacher."""
    case = case.but(student=case.student.to(dtypes[0]), teacher=case.teacher.to(dtypes[1]))
    unit = 2.0**-53 if torch.float64 in dtypes else 2.0**-24
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case, unit)
    assert_same_gradient(
        "the gradient", gradient, case.oracle_gradient(), case.shifted().allowed_gradient(unit), SHIFTED
    )


PLACES = st.sampled_from(["cpu", "cuda"])


@given(case=step_cases(), teacher_on=PLACES, batch_on=PLACES)
def falsify_module_step_stays_on_its_device(subject: Any, case: StepCase, teacher_on: str, batch_on: str) -> None:
    V = case.student.shape[1]
    with fake_cuda():
        module = embedding(case.student, "cuda")
        teacher = subject.ModuleTeacher(embedding(case.teacher, teacher_on), V)
        student, batch = subject.ModuleStudent(module, V), batch_of(subject, case, batch_on)
        result = subject.kd_step(teacher, student, batch, **case.settings)
        gradient = module.weight.grad
        assert gradient is not None and gradient.is_cuda, f"the gradient is {gradient}; expected one on cuda:0"
        stepped = case.student - gradient.cpu()
    assert_result_is_the_oracles(result, case)
    allowed = 2 * allowed_table(case, 1.0)
    assert_same_gradient("the table less its .grad", stepped, case.oracle_table(1.0), allowed, STEP)


@given(case=step_cases(ce_weights=st.just(1.0), kd_weights=st.just(0.0)), other=tensors((4,), HALVES, torch.float64))
def falsify_teacher_has_no_influence_at_zero_weight(subject: Any, device: str, case: StepCase, other: Tensor) -> None:
    changed = case.but(teacher=case.teacher + other[: case.teacher.shape[1]])
    result, table = table_step(subject, case, 1.0, device)
    with_other, table_with_other = table_step(subject, changed, 1.0, device)
    assert_result_is_the_oracles(result, case)
    assert_same_gradient("the student's table", table, case.oracle_table(1.0), allowed_table(case, 1.0), STEP)
    assert with_other.loss == result.loss, f"another teacher: {result.loss}, then {with_other.loss} nats"
    # Bits may differ only where a device adds the gradients of one row in no fixed order.
    allowed = 0.0 if device == "cpu" else allowed_table(case, 1.0)
    assert_same_gradient("the student's table under another teacher", table_with_other, table, allowed, "kd_weight = 0")


@given(case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_student_equal_to_teacher_gets_no_gradient(subject: Any, device: str, case: StepCase) -> None:
    case = case.but(student=case.teacher)
    result, gradient = recorded_step(subject, case, device)
    oracles.assert_close("loss in nats per token", result.loss, 0.0, case.shifted().allowed_nats(), "student = teacher")
    zero = torch.zeros_like(gradient)
    assert_same_gradient("the gradient", gradient, zero, case.shifted().allowed_gradient(), "student = teacher")


@given(
    case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS),
    away=tensors((4, 4), st.integers(-4, 4).map(float), torch.float64),
)
def falsify_loss_grows_with_divergence(subject: Any, device: str, case: StepCase, away: Tensor) -> None:
    away = away[: case.teacher.shape[0], : case.teacher.shape[1]]
    cases = [case.but(student=case.teacher + a * away) for a in (0.0, 0.5, 1.0, 2.0)]
    seen = [table_step(subject, c, 1.0, device)[0].loss for c in cases]
    for nearer, further, before, after in zip(cases, cases[1:], seen, seen[1:], strict=False):
        rise = (further.shifted().oracle_nats() - nearer.shifted().oracle_nats()) / max(
            int(further.shifted().scored.sum()), 1
        )
        allowed = nearer.shifted().allowed_nats() + further.shifted().allowed_nats()
        assert after >= before + rise / 2 - allowed, (
            f"the loss changed from {before:.9g} to {after:.9g} nats per token as the student moved away from the "
            f"teacher; expected a rise by {rise:.9g} (losses {seen} at a = 0, 1/2, 1, 2)"
        )


@given(case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_one_step_moves_towards_the_teacher(subject: Any, device: str, case: StepCase) -> None:
    first = case.shifted().scored.nonzero()[0].tolist()
    labels = torch.full_like(case.labels, IGNORED)
    labels[first[0], first[1] + 1] = 0
    case = case.but(labels=labels)
    token = int(case.tokens[first[0], first[1]])
    _, table = table_step(subject, case, 0.1, device)
    p, q = (oracles.softmax(x[token].tolist(), case.temperature) for x in (case.teacher, case.student))
    for v, (mass, own) in enumerate(zip(p, q, strict=True)):
        moved = float(table[token, v] - case.student[token, v])
        wanted = 0.1 * case.kd_weight * case.temperature * (mass - own)
        oracles.assert_close(
            f"move of logit {v} of token {token}", moved, wanted, allowed_table(case, 0.1), "lr·τ·(p - q)"
        )
    rest = [k for k in range(len(table)) if k != token]
    assert torch.equal(table[rest], case.student[rest]), f"besides that of {token}, a row changed"


@given(
    teacher=tensors((4, 4), st.integers(-3, 3).map(lambda k: k / 2), torch.float64),
    lift=st.sampled_from([1.0, -1.0, 2.0]),
    temperature=st.sampled_from([1.0, 2.0, 4.0]),
    length=st.integers(2, 5),
)
def falsify_ten_steps_lower_the_loss(
    subject: Any, device: str, teacher: Tensor, lift: float, temperature: float, length: int
) -> None:
    # τ²·KL of a row has curvature at most 1/2, and the gradient of the mean is 1/n of a row's, so a learning rate of n
    # is a step of size 1, which descends. Logits within 2 of their mean keep every probability above 1/100 at τ = 1, so
    # each step lowers the loss by about 2 % or more, and the first steps by most.
    student = teacher.clone()
    student[:, 0] += lift  # each row differs from the teacher's by more than a constant
    tokens = torch.arange(length)[None] % 4
    scored = min(length - 1, 4)
    case = StepCase(tokens, tokens, student, teacher, temperature, 0.0, 1.0)
    learner = subject.FixtureStudent(student.to(device), float(scored))
    frozen, batch = subject.FixtureTeacher(teacher.to(device)), batch_of(subject, case, device)
    losses = [subject.kd_step(frozen, learner, batch, **case.settings).loss for _ in range(11)]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses)), f"losses of ten steps: {losses}"
    assert losses[10] < 0.9 * losses[0], f"ten steps lower the loss from {losses[0]:.6g} to {losses[10]:.6g} nats only"
