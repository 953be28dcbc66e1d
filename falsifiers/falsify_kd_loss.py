"""Attacks on a distillation loss over logits and on its closed-form gradient.

The subject has `kd_loss(student, teacher, labels, *, temperature, ce_weight, kd_weight, ignore_index=-100)` with `.sum`
and `.count`, and `kd_logit_gradient` with the same arguments.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers import oracles
from falsifiers.strategies import (
    HALVES,
    IGNORED,
    LOGITS,
    NO_TOKEN,
    POSITIVE_WEIGHTS,
    KdCase,
    kd_cases,
)

LOSS = "sum over scored rows of ce_weight·CE + kd_weight·τ²·KL(teacher ‖ student)"
GRADIENT = "ce_weight·(softmax(s) - onehot) + kd_weight·τ·(softmax(s/τ) - softmax(t/τ))"
ANYWHERE = st.sampled_from(["none", "teacher", "student", "same", "each"])
IGNORE_INDICES = st.sampled_from([IGNORED, -1, 0, 1, 7])
TERMS_APART = st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])


def assert_loss_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 2.0**-53) -> None:
    loss = case.loss(subject, device)
    assert int(loss.count) == int(case.scored.sum()), (
        f"count is {int(loss.count)}, {int(case.scored.sum())} positions are scored"
    )
    assert not math.isnan(float(loss.sum)), f"sum is NaN, the oracle says {case.oracle_nats():.9g} nats ({LOSS})"
    oracles.assert_close("sum in nats", float(loss.sum), case.oracle_nats(), case.allowed_nats(unit), LOSS)


def assert_gradient_is_the_oracles(
    subject: Any, case: KdCase, device: str | None = None, unit: float = 2.0**-53
) -> None:
    assert_same_gradient(
        "the gradient", case.gradient(subject, device), case.oracle_gradient(), case.allowed_gradient(unit)
    )


def assert_same_gradient(what: str, seen: Tensor, expected: Tensor, allowed: float, formula: str = GRADIENT) -> None:
    difference = (seen.double() - expected.double()).abs()
    assert bool((difference <= allowed).all()), (
        f"{what} is {seen.tolist()}, expected {expected.tolist()} ({formula}); apart by {difference.max().item():.3g}, "
        f"allowed {allowed:.3g}"
    )


@given(case=kd_cases(banned=st.sampled_from(["none", "none", "teacher", "same"]), ignored=IGNORE_INDICES))
def falsify_value(subject: Any, case: KdCase) -> None:
    """Loss and count are the oracle's."""
    assert_loss_is_the_oracles(subject, case)


@given(
    dtype=st.sampled_from([torch.uint8, torch.int8, torch.int16, torch.int32]),
    labels=st.lists(
        st.sampled_from([0, 127, 128, IGNORED, 256 + IGNORED]) | st.integers(0, 199), min_size=1, max_size=4
    ),
    likely=st.integers(0, 199),
)
def falsify_label_dtypes(subject: Any, dtype: torch.dtype, labels: list[int], likely: int) -> None:
    """Labels mean what they say in every integer dtype: token 156 in uint8 has the bits of an ignored -100."""
    held = [label for label in labels if torch.iinfo(dtype).min <= label <= torch.iinfo(dtype).max]
    assume(held)
    student = torch.zeros(1, len(held), 200, dtype=torch.float64)
    student[..., likely] = 1.0
    wide = KdCase(student, torch.zeros_like(student), torch.tensor([held]), ce_weight=1.0)
    narrow = wide.but(labels=wide.labels.to(dtype))
    count, expected = int(narrow.loss(subject).count), int(wide.scored.sum())
    assert count == expected, f"labels {held} in {dtype}: count is {count}, {expected} positions are scored"
    what = f"sum in nats, labels {held} in {dtype}"
    oracles.assert_close(what, narrow.nats(subject), wide.oracle_nats(), wide.allowed_nats(), LOSS)
    gradient = narrow.gradient(subject)
    assert_same_gradient(f"the gradient at labels {held} in {dtype}", gradient, wide.oracle_gradient(), 1e-12)
    # 1e-12: 200 tokens' softmax in float64, a few hundred roundings of numbers up to 1


def falsify_two_token_value(subject: Any) -> None:
    """p = (1/2, 1/2), q = (9/10, 1/10), by hand: ln(1/2) - (ln(9/10) + ln(1/10)) / 2; the other direction is 0.368."""
    student, teacher = (
        torch.tensor([[[math.log(9.0), 0.0]]], dtype=torch.float64),
        torch.zeros(1, 1, 2, dtype=torch.float64),
    )
    seen = KdCase(student, teacher, torch.tensor([[0]])).nats(subject)
    expected = math.log(0.5) - (math.log(0.9) + math.log(0.1)) / 2
    oracles.assert_close("KL(teacher ‖ student) in nats", seen, expected, 1e-14, "p = (.5, .5), q = (.9, .1)")
    # 1e-14: a dozen roundings of numbers below 3 in float64


@given(
    case=kd_cases(logits=st.floats(-30, 30, width=32), dtype=torch.float32),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    distance=st.sampled_from([1.0, 2.0**-6, 2.0**-12]),
)
def falsify_low_precision(subject: Any, device: str, case: KdCase, dtype: torch.dtype, distance: float) -> None:
    """float32, bfloat16 and float16 logits: no further from the oracle than arithmetic in float32 must be."""
    student = case.teacher + distance * (case.student - case.teacher)
    case = case.but(student=student.to(dtype), teacher=case.teacher.to(dtype))
    unit = oracles.UNIT_ROUNDOFF[torch.float32]
    assert_loss_is_the_oracles(subject, case, device, unit)
    gradient = case.gradient(subject, device)
    assert gradient.dtype is torch.float32, (
        f"the gradient of {dtype} logits is {gradient.dtype}; expected torch.float32"
    )
    assert_gradient_is_the_oracles(subject, case, device, unit)
    # What autograd hands back is rounded to the dtype of the logits: half an ulp of numbers up to 2·(ce + kd·τ).
    size = 2 * (case.ce_weight + case.kd_weight * case.temperature)
    rounding = size * torch.finfo(dtype).eps + torch.finfo(dtype).tiny
    allowed = case.allowed_gradient(unit) + rounding
    assert_same_gradient("autograd of the loss", case.autograd(subject, device), case.oracle_gradient(), allowed)


@given(
    case=kd_cases(banned=st.sampled_from(["none", "none", "same"])),
    distance=st.sampled_from([1.0, 2.0**-26]),
)
def falsify_gradient_is_the_derivative(subject: Any, device: str, case: KdCase, distance: float) -> None:
    """The closed form and automatic differentiation of the subject's own loss agree, in float64.

    Also where the student is close to its teacher: there a divergence may round to less than 0, its gradient doesn't.
    """
    apart = torch.where(case.teacher.isinf(), 0.0, case.student - case.teacher)
    case = case.but(student=case.teacher + distance * apart)
    seen, expected = case.gradient(subject, device), case.autograd(subject, device)
    assert_same_gradient(
        "the gradient", seen, expected, 2 * case.allowed_gradient(), "autograd of the subject's own loss"
    )


@given(
    case=kd_cases(logits=HALVES),
    direction=st.lists(st.sampled_from([1, 0, -1, 2]), min_size=30, max_size=30).filter(any),
)
def falsify_gradient_by_differences(subject: Any, case: KdCase, direction: list[int]) -> None:
    """Central differences of the subject's own loss: independent of automatic differentiation, detached terms show."""
    along = torch.tensor(direction[: case.student.numel()], dtype=torch.float64).reshape(case.student.shape)
    h = 1e-4
    plus, minus = (case.but(student=case.student + sign * h * along) for sign in (1, -1))
    seen = float((case.gradient(subject) * along).sum())
    expected = (plus.nats(subject) - minus.nats(subject)) / (2 * h)
    # Third derivative along a direction of range 3: a third cumulant, at most 3^3/(6*sqrt(3)) < 3 for each softmax.
    third = 3 * int(case.scored.sum()) * (case.ce_weight + case.kd_weight / case.temperature)
    rounding = (plus.allowed_nats() + minus.allowed_nats()) / h + along.abs().sum().item() * case.allowed_gradient()
    oracles.assert_close(
        "gradient · direction", seen, expected, h * h * third + rounding, "central difference of the subject's own loss"
    )


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_gradient_closed_form(subject: Any, device: str, case: KdCase) -> None:
    """τ and not τ²: element by element the oracle's gradient."""
    assert_gradient_is_the_oracles(subject, case, device)


@given(case=kd_cases(banned=ANYWHERE))
def falsify_gradient_rows_sum_to_zero(subject: Any, case: KdCase) -> None:
    """Both terms are differences of two distributions."""
    for (b, t), *_ in case.rows():
        row = case.gradient(subject)[b, t]
        oracles.assert_close(
            f"sum of gradient row ({b}, {t})",
            float(row.sum()),
            0.0,
            len(row) * case.allowed_gradient(),
            "every row sums to 0",
        )


@given(case=kd_cases(logits=HALVES), student_shift=HALVES, teacher_shift=HALVES)
def falsify_shift_invariance(subject: Any, case: KdCase, student_shift: float, teacher_shift: float) -> None:
    """A constant added to a row's logits changes no distribution. Halves: adding them is exact."""
    shift = torch.arange(1, case.labels.numel() + 1).reshape(*case.labels.shape, 1).double()
    moved = case.but(student=case.student + student_shift * shift, teacher=case.teacher + teacher_shift * shift)
    formula = "the same logits before a constant was added to each row"
    allowed = case.allowed_nats() + moved.allowed_nats()
    oracles.assert_close("sum in nats", moved.nats(subject), case.nats(subject), allowed, formula)
    seen, expected = moved.gradient(subject), case.gradient(subject)
    assert_same_gradient("the gradient", seen, expected, case.allowed_gradient() + moved.allowed_gradient(), formula)


@given(case=kd_cases(), order=st.permutations(range(5)), reverse=st.booleans())
def falsify_permutation_equivariance(subject: Any, case: KdCase, order: list[int], reverse: bool) -> None:
    """Renaming tokens, or reordering positions, renames and reorders the gradient, and leaves the sum."""
    tokens = torch.tensor([v for v in order if v < case.student.shape[-1]])
    positions = torch.arange(case.labels.shape[1])
    positions = positions.flip(0) if reverse else positions.roll(1)
    labels = torch.where(case.scored, tokens.argsort()[case.labels.clamp_min(0)], case.labels)
    renamed = case.but(
        student=case.student[..., tokens][:, positions],
        teacher=case.teacher[..., tokens][:, positions],
        labels=labels[:, positions],
    )
    formula = "the same tokens and positions in another order"
    allowed = case.allowed_nats() + renamed.allowed_nats()
    oracles.assert_close("sum in nats", renamed.nats(subject), case.nats(subject), allowed, formula)
    expected = case.gradient(subject)[..., tokens][:, positions]
    assert_same_gradient("the gradient", renamed.gradient(subject), expected, 2 * case.allowed_gradient(), formula)


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS, banned=st.sampled_from(["none", "teacher"])))
def falsify_kl_is_a_divergence(subject: Any, case: KdCase) -> None:
    """KL >= 0, and with the teacher as its own student both loss and gradient are 0."""
    seen = case.nats(subject)
    assert seen >= -case.allowed_nats(), f"KL(teacher ‖ student) is {seen:.9g} nats; a divergence is never negative"
    itself = case.but(student=case.teacher)
    oracles.assert_close(
        "KL(teacher ‖ teacher) in nats", itself.nats(subject), 0.0, itself.allowed_nats(), "zero on itself"
    )
    zero = torch.zeros_like(case.student)
    allowed = itself.allowed_gradient()
    assert_same_gradient("the gradient at student = teacher", itself.gradient(subject), zero, allowed, "zero on itself")


@given(
    case=kd_cases(
        logits=st.integers(-6, 6).map(lambda k: k / 2),
        temperatures=st.just(2000.0),
        ce_weights=st.just(0.0),
        kd_weights=st.just(1.0),
    )
)
def falsify_large_temperature_limit(subject: Any, case: KdCase) -> None:
    """τ²·KL tends to ||(s - mean s) - (t - mean t)||² / 2V.

    At τ the limit is off by at most range(t)/τ, from the weights p, and range(s - t)/3τ, from the third cumulant:
    logits in [-3, 3] at τ = 2000 leave (6 + 4)/2000, half of the 1 % allowed.
    """
    centred = (case.student - case.student.mean(-1, keepdim=True)) - (
        case.teacher - case.teacher.mean(-1, keepdim=True)
    )
    limit = float(centred[case.scored].square().sum()) / (2 * case.student.shape[-1])
    seen = case.nats(subject)
    oracles.assert_close(
        "τ²·KL at τ = 2000 in nats", seen, limit, 0.01 * limit + case.allowed_nats(), "‖centred s - t‖² / 2V"
    )


@given(
    case=kd_cases(),
    value=st.sampled_from([1e3, math.nan, math.inf, -math.inf]),
    where=st.sampled_from(["student", "teacher", "both"]),
    element=st.integers(-1, 4),
)
def falsify_unscored_positions_have_no_influence(
    subject: Any, device: str, case: KdCase, value: float, where: str, element: int
) -> None:
    """Bit for bit: whatever stands at an unscored position, NaN included, value and gradients are what they were."""
    padding = torch.full_like(case.labels[:, :1], IGNORED)
    logits = torch.zeros_like(case.student[:, :1])
    case = case.but(
        student=torch.cat([case.student, logits], 1),
        teacher=torch.cat([case.teacher, logits], 1),
        labels=torch.cat([case.labels, padding], 1),
    )
    whole_row = element < 0 or element >= case.student.shape[-1]
    at = ~case.scored[..., None] & (
        torch.arange(case.student.shape[-1]) == element if not whole_row else torch.tensor(True)
    )
    changes = {
        name: torch.where(at, value, getattr(case, name)) for name in ("student", "teacher") if where in (name, "both")
    }
    moved = case.but(**changes)
    for what, seen, before in (
        ("sum", moved.loss(subject, device).sum, case.loss(subject, device).sum),
        ("count", moved.loss(subject, device).count, case.loss(subject, device).count),
        ("gradient", moved.gradient(subject, device), case.gradient(subject, device)),
        ("autograd gradient", moved.autograd(subject, device), case.autograd(subject, device)),
    ):
        assert torch.equal(seen, before), (
            f"{what} was {before.tolist()} and became {seen.tolist()} when {where} logits of unscored positions "
            f"became {value}"
        )
        if "gradient" in what:
            leaked = seen[~case.scored]
            assert not bool(leaked.any()), f"{what} is {leaked.tolist()} at unscored positions; expected exactly 0"


@given(case=kd_cases(ce_weights=st.just(1.0), kd_weights=st.just(0.0)), other=st.lists(LOGITS, min_size=5, max_size=5))
def falsify_teacher_has_no_influence_at_zero_weight(subject: Any, case: KdCase, other: list[float]) -> None:
    """kd_weight = 0 is cross-entropy, for every teacher."""
    teacher = case.teacher + torch.tensor(other, dtype=torch.float64)[: case.teacher.shape[-1]]
    for changed in (case, case.but(teacher=teacher)):
        assert_loss_is_the_oracles(subject, changed)
        assert_gradient_is_the_oracles(subject, changed)


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=st.just(1.0)), turn=st.integers(1, 4))
def falsify_labels_have_no_influence_at_zero_weight(subject: Any, case: KdCase, turn: int) -> None:
    """ce_weight = 0 is divergence alone: which token is the label doesn't matter, only which positions are scored."""
    labels = torch.where(case.scored, (case.labels + turn) % case.student.shape[-1], case.labels)
    changed = case.but(labels=labels)
    seen, before = changed.nats(subject), case.nats(subject)
    assert seen == before, f"sum was {before:.9g} nats and became {seen:.9g} with other labels, at ce_weight = 0"
    assert_same_gradient(
        "the gradient", changed.gradient(subject), case.gradient(subject), 0.0, "the same under other labels"
    )
    assert_loss_is_the_oracles(subject, changed)
    assert_gradient_is_the_oracles(subject, changed)


@given(case=kd_cases(banned=st.sampled_from(["none", "teacher"]), ignored=IGNORE_INDICES))
def falsify_batch_is_the_sum_of_its_elements(subject: Any, case: KdCase) -> None:
    """Each element has its own loss and gradient, whatever else is in the batch; twice the batch is twice the sum."""
    parts = [
        case.but(
            student=case.student[b, t][None, None],
            teacher=case.teacher[b, t][None, None],
            labels=case.labels[b, t][None, None],
        )
        for b in range(case.labels.shape[0])
        for t in range(case.labels.shape[1])
    ]
    whole, allowed = case.loss(subject), 2 * case.allowed_nats()
    alone = math.fsum(part.nats(subject) for part in parts)
    oracles.assert_close("sum in nats", float(whole.sum), alone, allowed, "its positions, each computed alone")
    gradients = torch.cat([part.gradient(subject) for part in parts]).reshape(case.student.shape)
    formula = "its positions, each computed alone"
    assert_same_gradient("the gradient", case.gradient(subject), gradients, 2 * case.allowed_gradient(), formula)
    twice = case.but(**{name: torch.cat([getattr(case, name)] * 2) for name in ("student", "teacher", "labels")})
    doubled = twice.loss(subject)
    assert int(doubled.count) == 2 * int(whole.count), (
        f"count is {int(doubled.count)} for two copies of {int(whole.count)}"
    )
    oracles.assert_close(
        "sum of the batch twice", float(doubled.sum), 2 * float(whole.sum), 2 * allowed, "twice the sum"
    )
    gradients = torch.cat([case.gradient(subject)] * 2)
    assert_same_gradient(
        "the gradient of the batch twice",
        twice.gradient(subject),
        gradients,
        2 * case.allowed_gradient(),
        "the same twice",
    )


@given(
    case=kd_cases(
        banned=st.sampled_from(["teacher", "student", "same", "each"]),
        logits=LOGITS | st.sampled_from([-1000.0, -300.0]),
    )
)
def falsify_impossible_tokens(subject: Any, device: str, case: KdCase) -> None:
    """Logits of -inf: no term for the teacher's, +inf for the student's alone, and a finite gradient in every case.

    -1000 is a mass that underflows: still a mass.
    """
    assert_loss_is_the_oracles(subject, case, device)
    for what, gradient in (("gradient", case.gradient(subject, device)), ("autograd", case.autograd(subject, device))):
        assert bool(gradient.isfinite().all()), (
            f"{what} is {gradient.tolist()}; expected finite numbers beside -inf logits"
        )
        assert_same_gradient(what, gradient, case.oracle_gradient(), 2 * case.allowed_gradient())


@given(case=kd_cases(dtype=torch.float32, banned=ANYWHERE, logits=HALVES | st.just(-500.0)))
def falsify_impossible_tokens_in_float32(subject: Any, device: str, case: KdCase) -> None:
    """The same where most masses underflow."""
    unit = oracles.UNIT_ROUNDOFF[torch.float32]
    assert_loss_is_the_oracles(subject, case, device, unit)
    assert_gradient_is_the_oracles(subject, case, device, unit)
    # Twice: autograd's way to the same number rounds elsewhere.
    assert_same_gradient(
        "autograd", case.autograd(subject, device), case.oracle_gradient(), 2 * case.allowed_gradient(unit)
    )


@given(case=kd_cases(banned=st.sampled_from(["student", "each"])), keep=st.sampled_from(["ce", "kd", "neither"]))
def falsify_a_weight_of_zero_removes_the_term(subject: Any, case: KdCase, keep: str) -> None:
    """Its infinities are gone with it: 0 times infinity is nowhere."""
    case = case.but(ce_weight=float(keep == "ce"), kd_weight=float(keep == "kd"))
    assert_loss_is_the_oracles(subject, case)
    gradient = case.autograd(subject)
    assert_same_gradient("autograd", gradient, case.oracle_gradient(), 2 * case.allowed_gradient())
    assert_gradient_is_the_oracles(subject, case)


@given(case=kd_cases(banned=ANYWHERE), padding=st.integers(1, 3))
def falsify_appended_impossible_tokens(subject: Any, case: KdCase, padding: int) -> None:
    """A vocabulary padded with -inf on both sides is the same vocabulary."""
    pad = torch.full((*case.labels.shape, padding), NO_TOKEN, dtype=case.student.dtype)
    padded = case.but(student=torch.cat([case.student, pad], -1), teacher=torch.cat([case.teacher, pad], -1))
    seen, before = padded.nats(subject), case.nats(subject)
    formula = "the same vocabulary without the padding"
    allowed = case.allowed_nats() + padded.allowed_nats()
    oracles.assert_close(f"sum with {padding} tokens of padding", seen, before, allowed, formula)
    expected = torch.cat([case.gradient(subject), torch.zeros_like(pad)], -1)
    allowed = case.allowed_gradient() + padded.allowed_gradient()
    assert_same_gradient("the gradient with padding", padded.gradient(subject), expected, allowed, formula)


@given(
    shape=st.sampled_from([(1, 1, 2), (2, 3, 4), (0, 3, 4), (2, 0, 4), (0, 0, 1)]),
    logit=st.sampled_from([0.0, 1e3, math.nan, math.inf, -math.inf]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def falsify_nothing_scored(
    subject: Any,
    device: str,
    shape: tuple[int, int, int],
    logit: float,
    weights: tuple[float, float],
    dtype: torch.dtype,
) -> None:
    """Sum 0, count 0, zero gradients; and backward works, so that such a batch can take part in a step."""
    logits = torch.full(shape, logit, dtype=dtype)
    labels = torch.full(shape[:2], IGNORED)
    case = KdCase(logits, logits.clone(), labels, 2.0, *weights)
    loss = case.loss(subject, device)
    assert (float(loss.sum), int(loss.count)) == (0.0, 0), (
        f"sum and count are {float(loss.sum)} and {int(loss.count)} where nothing is scored; expected 0 and 0"
    )
    for what, gradient in (("gradient", case.gradient(subject, device)), ("autograd", case.autograd(subject, device))):
        assert gradient.shape == logits.shape and not bool(gradient.any()), (
            f"{what} is {gradient.tolist()} where nothing is scored; expected zeros of shape {list(shape)}"
        )


@given(
    case=kd_cases(logits=st.sampled_from([0.0, 2e38, 1.9e38, -2e38, 1e4, -1e4]), dtype=torch.float32), terms=TERMS_APART
)
def falsify_large_logits_overflow_nothing(subject: Any, device: str, case: KdCase, terms: tuple[float, float]) -> None:
    """Near the end of float32 the loss may round to +inf, but is no NaN, and the gradient is the oracle's."""
    case = case.but(ce_weight=terms[0], kd_weight=terms[1])
    nats, gradient = case.nats(subject, device), case.gradient(subject, device)
    assert nats >= -case.allowed_nats(2.0**-24), (
        f"sum is {nats} nats for logits up to 2e38; expected a number >= 0, or +inf"
    )
    # These logits are equal or far apart, so each softmax is spread evenly over its largest logits: no rounding to
    # speak of.
    assert_same_gradient("the gradient", gradient, case.oracle_gradient(), 1e-5 * max(1.0, case.temperature))


@given(case=kd_cases())
def falsify_only_the_student_gets_a_gradient(subject: Any, case: KdCase) -> None:
    """A teacher that asks for a gradient gets none, from loss or closed form."""
    student, teacher = case.student.clone().requires_grad_(), case.teacher.clone().requires_grad_()
    live = case.but(student=student, teacher=teacher)
    loss = live.loss(subject)
    if loss.sum.requires_grad:
        loss.sum.backward()
    assert teacher.grad is None, f"the teacher got the gradient {teacher.grad}; expected none"
    gradient = live.gradient(subject)
    assert not gradient.requires_grad, "the closed-form gradient hangs on a graph; expected a plain tensor"


@given(
    case=kd_cases(dtype=torch.float32),
    integers=st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8]),
)
def falsify_inputs_are_left_alone(subject: Any, case: KdCase, integers: torch.dtype) -> None:
    """No argument is written to, layout and width of labels don't matter, and the same call gives the same bits."""
    case = case.but(labels=case.labels.to(integers))
    strided = case.but(
        student=case.student.transpose(0, 2).contiguous().transpose(0, 2), teacher=case.teacher.mT.contiguous().mT
    )
    before = [x.clone() for x in (strided.student, strided.teacher, strided.labels)]
    answers = [(x.loss(subject).sum, x.gradient(subject)) for x in (strided, strided)]
    for name, x, was in zip(
        ("student", "teacher", "labels"), (strided.student, strided.teacher, strided.labels), before, strict=True
    ):
        assert torch.equal(x, was), f"{name} was {was.tolist()} and is {x.tolist()} after the call"
    assert torch.equal(answers[0][0], answers[1][0]) and torch.equal(answers[0][1], answers[1][1]), (
        f"the same call answered {answers[0]} and then {answers[1]}"
    )
    assert_loss_is_the_oracles(subject, strided, unit=2.0**-24)
    assert_gradient_is_the_oracles(subject, strided, unit=2.0**-24)


@given(case=kd_cases(dtype=torch.float32, logits=HALVES), dtypes=st.permutations([torch.float64, torch.float32]))
def falsify_precision_is_the_wider_one(subject: Any, case: KdCase, dtypes: list[torch.dtype]) -> None:
    """Sums are float64 and counts int64; a float64 model beside a float32 one is computed in float64."""
    mixed = case.but(student=case.student.to(dtypes[0]), teacher=case.teacher.to(dtypes[1]))
    loss = mixed.loss(subject)
    assert (loss.sum.dtype, loss.count.dtype) == (torch.float64, torch.int64), (
        f"sum and count are {loss.sum.dtype} and {loss.count.dtype}; expected float64 and int64"
    )
    assert_loss_is_the_oracles(subject, mixed)
    gradient = mixed.gradient(subject)
    assert gradient.dtype is dtypes[0], f"the gradient is {gradient.dtype}, the student's logits are {dtypes[0]}"


def _case(**changes: Any) -> KdCase:
    logits = torch.arange(12, dtype=torch.float64).reshape(1, 3, 4) / 4
    return KdCase(logits, logits.flip(-1), torch.tensor([[1, IGNORED, 3]]), 2.0, 0.5, 0.5).but(**changes)


def _empty(**changes: Any) -> KdCase:
    whole = _case()
    return whole.but(student=whole.student[:0], teacher=whole.teacher[:0], labels=whole.labels[:0]).but(**changes)


def _logits(position: int, *values: float) -> Tensor:
    logits = _case().student.clone()
    logits[0, position, : len(values)] = torch.tensor(values, dtype=torch.float64)
    return logits


REFUSED: list[tuple[str, KdCase, tuple[str, ...]]] = [
    ("a label one past the vocabulary", _case(labels=torch.tensor([[1, 4, 3]])), ("label 4", "(0, 1)", "vocabulary")),
    ("a label far past the vocabulary", _case(labels=torch.tensor([[1, 50257, 3]])), ("50257", "(0, 1)")),
    ("a negative label that isn't the ignored one", _case(labels=torch.tensor([[1, 2, -1]])), ("label -1", "(0, 2)")),
    (
        "-100 where -1 is ignored",
        _case(labels=torch.tensor([[1, -1, -100]]), ignore_index=-1),
        ("label -100", "(0, 2)"),
    ),
    ("a teacher of another vocabulary", _case(teacher=torch.zeros(1, 3, 5).double()), ("4", "5", "vocabular")),
    ("a teacher of vocabulary 1", _case(teacher=torch.zeros(1, 3, 1).double()), ("4", "1", "vocabular")),
    (
        "another vocabulary, nothing scored",
        _case(teacher=torch.zeros(1, 3, 5).double(), labels=torch.full((1, 3), IGNORED)),
        ("4", "5"),
    ),
    ("a teacher of another length", _case(teacher=torch.zeros(1, 2, 4).double()), ("[1, 2, 4]", "[1, 3, 4]")),
    ("a teacher of length 1", _case(teacher=torch.zeros(1, 1, 4).double()), ("[1, 1, 4]",)),
    ("a teacher of another batch", _case(teacher=torch.zeros(2, 3, 4).double()), ("[2, 3, 4]",)),
    ("a teacher on another device", _case(teacher=torch.zeros(1, 3, 4, device="meta").double()), ("meta", "device")),
    ("labels on another device", _case(labels=torch.zeros(1, 3, device="meta").long()), ("meta", "device")),
    ("labels of another length", _case(labels=torch.tensor([[1, 2]])), ("[1, 2]",)),
    ("labels that would broadcast", _case(labels=torch.tensor([[1]])), ("[1, 1]",)),
    ("labels that are floats", _case(labels=torch.tensor([[1.0, 2.0, 3.0]])), ("labels", "integer")),
    ("labels that are a mask", _case(labels=torch.tensor([[True, False, True]])), ("labels", "integer")),
    ("logits that are integers", _case(student=torch.zeros(1, 3, 4, dtype=torch.int64)), ("student", "float")),
    ("logits without a batch axis", _case(student=torch.zeros(3, 4).double()), ("student", "[3, 4]")),
    (
        "an empty vocabulary",
        _case(student=torch.zeros(1, 3, 0).double(), teacher=torch.zeros(1, 3, 0).double()),
        ("[1, 3, 0]",),
    ),
    ("NaN in the student", _case(student=_logits(2, math.nan)), ("student", "(0, 2)", "nan")),
    ("NaN in the teacher", _case(teacher=_logits(2, math.nan)), ("teacher", "(0, 2)", "nan")),
    ("NaN in a teacher of weight 0", _case(teacher=_logits(2, math.nan), kd_weight=0.0), ("teacher", "(0, 2)", "nan")),
    ("+inf in the student", _case(student=_logits(0, math.inf)), ("student", "(0, 0)", "inf")),
    ("+inf in the teacher", _case(teacher=_logits(0, math.inf)), ("teacher", "(0, 0)", "inf")),
    ("-inf throughout in the student", _case(student=_logits(0, *[NO_TOKEN] * 4)), ("student", "(0, 0)", "-inf")),
    ("-inf throughout in the teacher", _case(teacher=_logits(0, *[NO_TOKEN] * 4)), ("teacher", "(0, 0)", "-inf")),
    *(
        (f"temperature {tau}", _case(temperature=tau), ("temperature",))
        for tau in (0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e200)
    ),
    *(
        (f"{name} {w!r}", _case(**{name: w}), (name, repr(w)))
        for name in ("ce_weight", "kd_weight")
        for w in (-0.1, math.nan, math.inf, None, "1", True)
    ),
    *((f"temperature {tau!r}", _case(temperature=tau), ("temperature", repr(tau))) for tau in (None, "2", True)),
    *((f"{name} in an empty batch", _empty(**{name: -1.0}), (name, "-1")) for name in KdCase.__slots__[3:6]),
    ("another vocabulary in an empty batch", _empty(teacher=torch.zeros(0, 3, 5).double()), ("4", "5", "vocabular")),
    *((f"ignore_index {i!r}", _case(ignore_index=i), ("ignore_index", repr(i))) for i in (None, 0.5, "0")),
    ("no tensor for a student", _case(student=[[[0.0] * 4] * 3]), ("student", "list")),
    ("no tensor for labels", _case(labels=[[1, 2, 3]]), ("labels", "list")),
]


def falsify_refused_inputs(subject: Any) -> None:
    """Everything outside the domain is refused by loss and gradient alike, with what was read."""
    complaints = [
        oracles.refusal_complaint(f"{what}, {name}", lambda call=call, case=case: call(case), *words)
        for what, case, words in REFUSED
        for name, call in (("loss", lambda c: c.loss(subject)), ("gradient", lambda c: c.gradient(subject)))
    ]
    found = [complaint for complaint in complaints if complaint]
    assert not found, "\n".join(found)


@given(
    case=kd_cases(logits=HALVES),
    beyond=st.integers(0, 7),
    below=st.booleans(),
    where=st.integers(0, 5),
    alone=st.booleans(),
)
def falsify_labels_outside_the_vocabulary(
    subject: Any, case: KdCase, beyond: int, below: bool, where: int, alone: bool
) -> None:
    """A label is a token, the ignored one, or refused by its name and place, also as the only one that is scored."""
    V = case.student.shape[-1]
    label = -1 - beyond if below else V + beyond
    b, t = divmod(where % case.labels.numel(), case.labels.shape[1])
    labels = torch.full_like(case.labels, IGNORED) if alone else case.labels.clone()
    labels[b, t] = label
    changed = case.but(labels=labels)
    for name, call in (("loss", changed.loss), ("gradient", changed.gradient)):
        what = f"label {label} in a vocabulary of {V}, {name}"
        oracles.assert_refused(what, lambda call=call: call(subject), f"label {label}", f"({b}, {t})")


@given(
    case=kd_cases(logits=HALVES),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
    whose=st.sampled_from(["student", "teacher"]),
    where=st.integers(0, 5),
    element=st.integers(0, 4),
    alone=st.booleans(),
)
def falsify_rows_that_are_no_distribution(
    subject: Any, case: KdCase, value: float, whose: str, where: int, element: int, alone: bool
) -> None:
    """A scored row with NaN or +inf, or of -inf throughout, is refused by model, place and value.

    In every shape down to one element, one position and one token, and also as the only row that is scored.
    """
    scored = case.scored.nonzero().tolist()
    b, t = scored[where % len(scored)]
    logits = getattr(case, whose).clone()
    at = slice(None) if value == NO_TOKEN else element % logits.shape[-1]
    logits[b, t, at] = value
    labels = torch.full_like(case.labels, IGNORED) if alone else case.labels.clone()
    labels[b, t] = case.labels[b, t]
    broken = case.but(labels=labels, **{whose: logits})
    for name, call in (("loss", broken.loss), ("gradient", broken.gradient)):
        what = f"{whose} logits {logits[b, t].tolist()} at scored position ({b}, {t}), {name}"
        oracles.assert_refused(what, lambda call=call: call(subject), whose, f"({b}, {t})", str(value))


def falsify_sums_are_wider_than_their_terms(subject: Any, device: str) -> None:
    """Terms are float32 numbers; their sums have bits that no float32 number has, over tokens and over positions.

    Of many sums of many numbers all but a few have such bits; a sum kept in float32 never has one.
    """
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(1, 32, 64, generator=generator) for _ in range(2))
    labels = torch.randint(64, (1, 32), generator=generator)
    case = KdCase(student, teacher, labels)
    over_tokens = [case.but(labels=labels.where(torch.arange(32) == t, IGNORED)) for t in range(32)]
    over_positions = [
        case.but(labels=labels.where(torch.arange(32) <= t, IGNORED), ce_weight=1.0, kd_weight=0.0)
        for t in range(2, 32)
    ]
    for axis, cases in (("tokens", over_tokens), ("positions", over_positions)):
        sums = [x.nats(subject, device) for x in cases]
        narrow = [nats for nats in sums if float(torch.tensor(nats, dtype=torch.float32)) == nats]
        assert len(narrow) < len(sums), (
            f"each of {len(sums)} sums over {axis} of float32 terms is a float32 number, such as {sums[0]!r}; a "
            f"float64 sum has more bits"
        )
