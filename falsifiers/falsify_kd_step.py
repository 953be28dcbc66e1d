"""Attacks on the distillation step and on its teachers and students.

The subject has `Batch(tokens=, labels=)`, `FixtureTeacher(table)`, `FixtureStudent(table, learning_rate)` with
`.logits_table`, `ModuleTeacher(module, vocab_size)`, `ModuleStudent(module, vocab_size)` and
`kd_step(teacher, student, batch, *, temperature, ce_weight, kd_weight)`, as `reference_trainer.providers` does.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers import oracles
from falsifiers.falsify_kd_loss import assert_same_gradient
from falsifiers.strategies import HALVES, IGNORED, LOGITS, POSITIVE_WEIGHTS, StepCase, step_cases, tensors

STEP = "table[token] - learning_rate · oracle gradient of the mean over scored tokens"
SHIFTED = "logits at i against the label at i + 1, divided by the scored tokens"


class RecordingPass:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.gradients: list[Tensor] = []

    def backward(self, logit_gradient: Tensor) -> None:
        self.gradients.append(logit_gradient)


class RecordingStudent:
    """A student that only writes down what is done to it. It answers from a table, or always with the same logits."""

    def __init__(self, table: Tensor, logits: Any = None) -> None:
        self.table, self.vocab_size, self.fixed = table, table.shape[1], logits
        self.passes: list[RecordingPass] = []

    def forward(self, batch: Any) -> RecordingPass:
        self.passes.append(RecordingPass(self.table[batch.tokens.long()] if self.fixed is None else self.fixed))
        return self.passes[-1]


class AnsweringTeacher:
    """A teacher that answers with whatever it was given."""

    def __init__(self, vocab_size: int, answer: Any) -> None:
        self.vocab_size, self.answer = vocab_size, answer

    def logits(self, batch: Any) -> Any:
        return self.answer


def batch_of(subject: Any, case: StepCase, device: str = "cpu") -> Any:
    return subject.Batch(tokens=case.tokens.to(device), labels=case.labels.to(device))


def recorded_step(subject: Any, case: StepCase, device: str = "cpu") -> tuple[Any, Tensor]:
    """The step's result, and the one gradient that it handed to the student."""
    student = RecordingStudent(case.student.to(device))
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    gradients = [gradient for done in student.passes for gradient in done.gradients]
    assert len(student.passes) == len(gradients) == 1, (
        f"one step ran {len(student.passes)} student forwards and handed over {len(gradients)} gradients; expected 1 "
        "and 1"
    )
    expected = [*case.tokens.shape, case.student.shape[1]]
    assert list(gradients[0].shape) == expected, (
        f"the gradient has shape {list(gradients[0].shape)}; expected {expected}"
    )
    return result, gradients[0].cpu()


def table_step(subject: Any, case: StepCase, learning_rate: float, device: str = "cpu") -> tuple[Any, Tensor]:
    """The step's result, and the student's table after it."""
    student = subject.FixtureStudent(case.student.to(device), learning_rate)
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    return result, student.logits_table.cpu()


def assert_result_is_the_oracles(result: Any, case: StepCase, unit: float = 2.0**-53) -> None:
    shifted = case.shifted()
    nats, count, allowed = shifted.oracle_nats(), int(shifted.scored.sum()), shifted.allowed_nats(unit)
    assert result.count == count, f"count is {result.count}; {count} tokens after the first are scored"
    oracles.assert_close("sum in nats", result.sum, nats, allowed, SHIFTED)
    assert result.loss is not None, f"the loss is absent; {count} tokens are scored"
    oracles.assert_close("loss in nats per token", result.loss, nats / count, allowed / count, SHIFTED)
    # A tensor would keep its device busy and its graph alive for as long as somebody keeps the metrics.
    kinds = {name: (type(metric.sum), type(metric.count)) for name, metric in result.metrics.items()}
    assert all(kind == (float, int) for kind in kinds.values()), f"metrics are of {kinds}; expected float and int"


def allowed_table(case: StepCase, learning_rate: float, unit: float = 2.0**-53) -> float:
    """Every token of the batch may add its error to one row; the row itself rounds once for each."""
    tokens = case.tokens.numel()
    largest = float(case.student.abs().max()) + learning_rate * tokens * (
        case.ce_weight + case.kd_weight * case.temperature
    )
    return learning_rate * tokens * case.shifted().allowed_gradient(unit) + 2 * tokens * unit * largest


@given(case=step_cases(ce_weights=st.just(1.0), kd_weights=st.just(0.0)), other=tensors((4,), HALVES, torch.float64))
def falsify_teacher_has_no_influence_at_zero_weight(subject: Any, device: str, case: StepCase, other: Tensor) -> None:
    """kd_weight = 0: loss and step are those of cross-entropy, bit for bit the same under every teacher."""
    changed = case.but(teacher=case.teacher + other[: case.teacher.shape[1]])
    result, table = table_step(subject, case, 1.0, device)
    with_other, table_with_other = table_step(subject, changed, 1.0, device)
    assert_result_is_the_oracles(result, case)
    assert_same_gradient("the student's table", table, case.oracle_table(1.0), allowed_table(case, 1.0), STEP)
    assert with_other.loss == result.loss, (
        f"the loss went from {result.loss} to {with_other.loss} nats with another teacher"
    )
    # Unequal bits only where a device adds up one row's gradients in no fixed order.
    allowed = 0.0 if device == "cpu" else allowed_table(case, 1.0)
    assert_same_gradient("the student's table under another teacher", table_with_other, table, allowed, "kd_weight = 0")


@given(case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_student_equal_to_teacher_stays(subject: Any, device: str, case: StepCase) -> None:
    """ce_weight = 0 and student = teacher: loss 0, gradient 0."""
    case = case.but(student=case.teacher)
    result, gradient = recorded_step(subject, case, device)
    oracles.assert_close("loss in nats per token", result.loss, 0.0, case.shifted().allowed_nats(), "student = teacher")
    zero = torch.zeros_like(gradient)
    assert_same_gradient("the gradient", gradient, zero, case.shifted().allowed_gradient(), "student = teacher")


@given(
    case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS),
    away=tensors((4, 4), st.integers(-4, 4).map(float), torch.float64),
)
def falsify_loss_grows_with_divergence(subject: Any, case: StepCase, away: Tensor) -> None:
    """Along s = t + a·away the divergence is convex in a with its minimum, 0, at a = 0: it never falls as a grows."""
    away = away[: case.teacher.shape[0], : case.teacher.shape[1]]
    cases = [case.but(student=case.teacher + a * away) for a in (0.0, 0.5, 1.0, 2.0)]
    seen = [table_step(subject, c, 1.0)[0].loss for c in cases]
    for nearer, further, before, after in zip(cases, cases[1:], seen, seen[1:], strict=False):
        rise = (further.shifted().oracle_nats() - nearer.shifted().oracle_nats()) / max(
            int(further.shifted().scored.sum()), 1
        )
        allowed = nearer.shifted().allowed_nats() + further.shifted().allowed_nats()
        assert after >= before + rise / 2 - allowed, (
            f"the loss went from {before:.9g} to {after:.9g} nats per token as the student moved away from the "
            f"teacher, the oracle's rises by {rise:.9g}; along {seen} at a = 0, 1/2, 1, 2"
        )


@given(case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_one_step_moves_towards_the_teacher(subject: Any, case: StepCase) -> None:
    """One scored token: each logit that led to it moves up where the teacher gives more mass, down where less."""
    first = case.shifted().scored.nonzero()[0].tolist()
    labels = torch.full_like(case.labels, IGNORED)
    labels[first[0], first[1] + 1] = 0
    case = case.but(labels=labels)
    token = int(case.tokens[first[0], first[1]])
    _, table = table_step(subject, case, 0.1)
    p, q = (oracles.softmax(x[token].tolist(), case.temperature) for x in (case.teacher, case.student))
    for v, (mass, own) in enumerate(zip(p, q, strict=True)):
        moved = float(table[token, v] - case.student[token, v])
        wanted = 0.1 * case.kd_weight * case.temperature * (mass - own)
        oracles.assert_close(
            f"move of logit {v} of token {token}", moved, wanted, allowed_table(case, 0.1), "lr·τ·(p - q)"
        )
    rest = [k for k in range(len(table)) if k != token]
    assert torch.equal(table[rest], case.student[rest]), (
        f"rows {rest} moved, and only token {token} led to a scored token"
    )


@given(
    teacher=tensors((4, 4), st.integers(-3, 3).map(lambda k: k / 2), torch.float64),
    lift=st.sampled_from([1.0, -1.0, 2.0]),
    temperature=st.sampled_from([1.0, 2.0, 4.0]),
    length=st.integers(2, 5),
)
def falsify_ten_steps_descend(subject: Any, teacher: Tensor, lift: float, temperature: float, length: int) -> None:
    """Each of ten steps lowers the loss, and the last is below 90 % of the first.

    τ²·KL of a row has curvature at most 1/2, and the gradient of the mean is 1/n of a row's: a rate of n is a step of
    1, which descends. Logits within 2 of their mean keep every mass above 1/100 at τ = 1, so each step takes at least
    1 % twice; the first steps, far from the minimum, take most.
    """
    student = teacher.clone()
    student[:, 0] += lift  # each row differs from the teacher's by more than a constant
    tokens = torch.arange(length)[None] % 4
    scored = min(length - 1, 4)
    case = StepCase(tokens, tokens, student, teacher, temperature, 0.0, 1.0)
    learner = subject.FixtureStudent(student, float(scored))
    frozen, batch = subject.FixtureTeacher(teacher), batch_of(subject, case)
    losses = [subject.kd_step(frozen, learner, batch, **case.settings).loss for _ in range(11)]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses)), (
        f"the loss doesn't fall in every one of ten steps: {losses} nats per token"
    )
    assert losses[10] < 0.9 * losses[0], (
        f"after ten steps the loss is {losses[10]:.6g} of {losses[0]:.6g} nats; expected < 90 %"
    )


@given(case=step_cases(logits=LOGITS))
def falsify_step_against_oracle(subject: Any, device: str, case: StepCase) -> None:
    """Result and gradient are the oracle's: shifted once, divided once, every element, every position."""
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case)
    assert_same_gradient("the gradient", gradient, case.oracle_gradient(), case.shifted().allowed_gradient(), SHIFTED)


@given(case=step_cases(dtype=torch.float32), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_step_in_low_precision(subject: Any, device: str, case: StepCase, dtype: torch.dtype) -> None:
    """The same for float32 and bfloat16 logits, within what float32 arithmetic must round."""
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    unit = 2.0**-24
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case, unit)
    assert_same_gradient(
        "the gradient", gradient, case.oracle_gradient(), case.shifted().allowed_gradient(unit), SHIFTED
    )


@given(case=step_cases(ce_weights=st.just(0.5), kd_weights=st.just(0.5)))
def falsify_exact_zero_set(subject: Any, device: str, case: StepCase) -> None:
    """The gradient is exactly 0 where the next token isn't scored and in the last position, and nowhere else."""
    rank = torch.arange(case.student.shape[1], dtype=torch.float64)
    case = case.but(student=torch.zeros_like(case.student) + rank, teacher=torch.zeros_like(case.teacher) - rank)
    _, gradient = recorded_step(subject, case, device)
    seen = gradient.abs().sum(-1) > 0
    expected = torch.zeros_like(seen)
    expected[:, :-1] = case.labels[:, 1:] != IGNORED
    assert torch.equal(seen, expected), (
        f"with labels {case.labels.tolist()} the gradient is nonzero at {seen.tolist()}; expected {expected.tolist()}: "
        f"position i answers for label i + 1"
    )


@given(case=step_cases(), value=st.sampled_from([1e3, math.nan, math.inf, -math.inf]))
def falsify_unscored_logits_never_reach_the_step(subject: Any, case: StepCase, value: float) -> None:
    """Logits before unscored tokens and in the last position may be anything: result and gradient keep their bits."""
    dead = torch.ones_like(case.tokens, dtype=torch.bool)
    dead[:, :-1] = case.labels[:, 1:] == IGNORED
    live = case.student[case.tokens]
    answers = []
    taught = case.teacher[case.tokens]
    broken, broken_taught = (torch.where(dead[..., None], value, logits) for logits in (live, taught))
    for logits, teacher_logits in ((live, taught), (broken, broken_taught)):
        student = RecordingStudent(case.student, logits)
        teacher = AnsweringTeacher(case.teacher.shape[1], teacher_logits)
        result = subject.kd_step(teacher, student, batch_of(subject, case), **case.settings)
        gradient = student.passes[0].gradients[0].tolist()
        answers.append((result.loss, result.sum, result.count, result.metrics, gradient))
    assert answers[0] == answers[1], f"{answers[0]} became {answers[1]} when unscored logits became {value}"


@given(case=step_cases(), learning_rate=st.sampled_from([1.0, 0.25, 3.0]))
def falsify_every_element_is_applied(subject: Any, device: str, case: StepCase, learning_rate: float) -> None:
    """A table moves by the sum over all elements and positions, those of repeated tokens too."""
    _, table = table_step(subject, case, learning_rate, device)
    allowed = allowed_table(case, learning_rate)
    assert_same_gradient("the student's table", table, case.oracle_table(learning_rate), allowed, STEP)


@given(case=step_cases())
def falsify_duplicate_batch(subject: Any, case: StepCase) -> None:
    """The batch twice over: twice the sum and count, the same loss, the same step."""
    twice = case.but(tokens=torch.cat([case.tokens] * 2), labels=torch.cat([case.labels] * 2))
    (once, table), (doubled, doubled_table) = table_step(subject, case, 1.0), table_step(subject, twice, 1.0)
    allowed = twice.shifted().allowed_nats()
    assert doubled.count == 2 * once.count, f"count is {doubled.count} for two copies of {once.count}"
    oracles.assert_close("sum in nats", doubled.sum, 2 * once.sum, allowed, "twice the sum of one copy")
    oracles.assert_close("loss in nats per token", doubled.loss, once.loss, allowed, "the loss of one copy")
    assert_same_gradient(
        "the student's table", doubled_table, table, 2 * allowed_table(twice, 1.0), "the step of one copy"
    )


@given(case=step_cases())
def falsify_metrics(subject: Any, case: StepCase) -> None:
    """Cross-entropy and KL are sums in nats with their counts, whatever their weights."""
    result, _ = recorded_step(subject, case)
    shifted = case.shifted()
    for name, weights, formula in (
        ("cross_entropy", (1.0, 0.0, 1.0), "-log softmax(s)[y]"),
        ("kl", (0.0, 1.0, case.temperature**2), "KL(teacher ‖ student) at τ, without τ²"),
    ):
        alone = shifted.but(ce_weight=weights[0], kd_weight=weights[1])
        assert name in result.metrics, f"metrics are {sorted(result.metrics)}; {name} is missing"
        metric = result.metrics[name]
        oracles.assert_close(
            f"{name} sum", metric.sum, alone.oracle_nats() / weights[2], 2 * alone.allowed_nats() / weights[2], formula
        )
        assert metric.count == result.count, f"{name} counts {metric.count} tokens, the step {result.count}"


class LiveStudent:
    """Its logits are what it learns: a gradient changes them where the step reads them, and is used up."""

    def __init__(self, logits: Tensor) -> None:
        self.logits, self.vocab_size = logits, logits.shape[-1]

    def forward(self, batch: Any) -> LiveStudent:
        return self

    def backward(self, logit_gradient: Tensor) -> None:
        self.logits.sub_(logit_gradient)
        logit_gradient.fill_(math.nan)


@given(case=step_cases())
def falsify_a_step_reports_what_it_saw(subject: Any, case: StepCase) -> None:
    """The result is from before the gradient, also where the student's logits change as it is applied."""
    expected, gradient = recorded_step(subject, case)
    logits = case.student[case.tokens]
    live = LiveStudent(logits.clone())
    result = subject.kd_step(subject.FixtureTeacher(case.teacher), live, batch_of(subject, case), **case.settings)
    assert result == expected, (
        f"a student whose logits are what it learns gets {result}; expected {expected}, as before the gradient"
    )
    assert torch.equal(live.logits, logits - gradient), "the student got another gradient than one that only reads"


@given(
    tokens=st.lists(st.integers(0, 2), min_size=2, max_size=4),
    labels=st.lists(
        st.sampled_from([IGNORED, 256 + IGNORED, 0, 127, 128]) | st.integers(0, 199), min_size=4, max_size=4
    ),
    dtypes=st.tuples(*[st.sampled_from([torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])] * 2),
)
def falsify_integers_of_every_width(
    subject: Any, tokens: list[int], labels: list[int], dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    """Tokens and labels mean what they say in every integer dtype, to fixtures and step alike."""
    fits = torch.iinfo(dtypes[1])
    held = [label if fits.min <= label <= fits.max else 1 for label in labels[: len(tokens)]]
    held[-1] = abs(held[-1])  # so something is scored: 100 where it was ignored
    student = torch.zeros(3, 200, dtype=torch.float64)
    student[0, 0] = student[1, 100] = student[2, 156] = 1.0
    wide = StepCase(torch.tensor([tokens]), torch.tensor([held]), student, student.flip(0), ce_weight=1.0)
    narrow = wide.but(tokens=wide.tokens.to(dtypes[0]), labels=wide.labels.to(dtypes[1]))
    result, table = table_step(subject, narrow, 1.0)
    assert_result_is_the_oracles(result, wide)
    what = f"the table after tokens {tokens} in {dtypes[0]}, labels {held} in {dtypes[1]}"
    assert_same_gradient(what, table, wide.oracle_table(1.0), allowed_table(wide, 1.0), STEP)


@given(
    shape=st.sampled_from([(1, 1), (2, 3), (0, 3), (2, 0), (1, 2)]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]),
    scored_first=st.booleans(),
)
def falsify_step_with_nothing_scored(
    subject: Any, device: str, shape: tuple[int, int], weights: tuple[float, float], scored_first: bool
) -> None:
    """Loss and metrics absent, not 0; count 0; a gradient of zeros, applied. A first token's label predicts nothing."""
    labels = torch.full(shape, IGNORED)
    if scored_first:
        labels[:, :1] = 1
    table = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    case = StepCase(torch.ones(shape, dtype=torch.int64), labels, table, table.flip(0), 2.0, *weights)
    result, gradient = recorded_step(subject, case, device)
    assert result.loss is None, f"the loss is {result.loss} where nothing is scored; expected None"
    assert (result.sum, result.count, dict(result.metrics)) == (0.0, 0, {}), (
        f"sum, count, metrics are {result.sum}, {result.count}, {result.metrics} where nothing is scored; expected "
        "0, 0, none"
    )
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} where nothing is scored; expected zeros"
    _, after = table_step(subject, case, 1.0, device)
    assert torch.equal(after, table), f"the table moved to {after.tolist()} where nothing is scored"
