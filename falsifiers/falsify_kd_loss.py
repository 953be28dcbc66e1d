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
    POSITIVE_WEIGHTS,
    KdCase,
    kd_cases,
    unit_of,
)

LOSS = "sum over scored rows of ce_weight·CE + kd_weight·τ²·KL(teacher ‖ student)"
GRADIENT = "ce_weight·(softmax(s) - onehot) + kd_weight·τ·(softmax(s/τ) - softmax(t/τ))"
ANYWHERE = st.sampled_from(["none", "teacher", "student", "same", "each"])
IGNORE_INDICES = st.sampled_from([IGNORED, -1, 0, 1, 7])
TERMS_APART = st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])


def assert_loss_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """`unit`: the unit roundoff to allow for; by default that of the subject's arithmetic."""
    loss = case.loss(subject, device)
    assert int(loss.count) == int(case.scored.sum()), (
        f"count is {int(loss.count)}, {int(case.scored.sum())} positions are scored"
    )
    assert not math.isnan(float(loss.sum)), f"sum is NaN, the oracle says {case.oracle_nats():.9g} nats ({LOSS})"
    oracles.assert_close(
        "sum in nats", float(loss.sum), case.oracle_nats(), case.allowed_nats(unit or unit_of(subject)), LOSS
    )


def assert_gradient_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    assert_same_gradient(
        "the gradient",
        case.gradient(subject, device),
        case.oracle_gradient(),
        case.allowed_gradient(unit or unit_of(subject)),
    )


def assert_same_gradient(what: str, seen: Tensor, expected: Tensor, allowed: float, formula: str = GRADIENT) -> None:
    difference = (seen.double() - expected.double()).abs()
    assert bool((difference <= allowed).all()), (
        f"{what} is {seen.tolist()}, expected {expected.tolist()} ({formula}); apart by {difference.max().item():.3g}, "
        f"allowed {allowed:.3g}"
    )


@given(case=kd_cases(ignored=IGNORE_INDICES))
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
    oracles.assert_close(what, narrow.nats(subject), wide.oracle_nats(), wide.allowed_nats(unit_of(subject)), LOSS)
    gradient = narrow.gradient(subject)
    assert_same_gradient(f"the gradient at labels {held} in {dtype}", gradient, wide.oracle_gradient(), 1e-12)
    # 1e-12: 200 tokens' softmax in float64, a few hundred roundings of numbers up to 1


@st.composite
def narrow_cases(draw: st.DrawFn) -> KdCase:
    """float32, bfloat16 and float16 logits, the student sometimes close to its teacher."""
    case = draw(kd_cases(logits=st.floats(-30, 30, width=32), dtype=torch.float32))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    student = case.teacher + draw(st.sampled_from([1.0, 2.0**-6, 2.0**-12])) * (case.student - case.teacher)
    return case.but(student=student.to(dtype), teacher=case.teacher.to(dtype))


@given(case=narrow_cases())
def falsify_low_precision_gradient(subject: Any, device: str, case: KdCase) -> None:
    """The closed form of narrow logits is float32, so that nothing is lost before it is accumulated."""
    gradient = case.gradient(subject, device)
    assert gradient.dtype is torch.float32, (
        f"the gradient of {case.student.dtype} logits is {gradient.dtype}; expected torch.float32"
    )
    assert_gradient_is_the_oracles(subject, case, device, oracles.UNIT_ROUNDOFF[torch.float32])


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
        "the gradient",
        seen,
        expected,
        2 * case.allowed_gradient(unit_of(subject)),
        "autograd of the subject's own loss",
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
    rounding = (
        plus.allowed_nats(unit_of(subject)) + minus.allowed_nats(unit_of(subject))
    ) / h + along.abs().sum().item() * case.allowed_gradient(unit_of(subject))
    oracles.assert_close(
        "gradient · direction", seen, expected, h * h * third + rounding, "central difference of the subject's own loss"
    )


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_gradient_closed_form(subject: Any, device: str, case: KdCase) -> None:
    """τ and not τ²: element by element the oracle's gradient."""
    assert_gradient_is_the_oracles(subject, case, device)


@given(case=kd_cases(logits=HALVES), student_shift=HALVES, teacher_shift=HALVES)
def falsify_shift_invariance(subject: Any, case: KdCase, student_shift: float, teacher_shift: float) -> None:
    """A constant added to a row's logits changes no distribution. Halves: adding them is exact."""
    shift = torch.arange(1, case.labels.numel() + 1).reshape(*case.labels.shape, 1).double()
    moved = case.but(student=case.student + student_shift * shift, teacher=case.teacher + teacher_shift * shift)
    formula = "the same logits before a constant was added to each row"
    allowed = case.allowed_nats(unit_of(subject)) + moved.allowed_nats(unit_of(subject))
    oracles.assert_close("sum in nats", moved.nats(subject), case.nats(subject), allowed, formula)
    seen, expected = moved.gradient(subject), case.gradient(subject)
    assert_same_gradient(
        "the gradient",
        seen,
        expected,
        case.allowed_gradient(unit_of(subject)) + moved.allowed_gradient(unit_of(subject)),
        formula,
    )


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
    allowed = case.allowed_nats(unit_of(subject)) + renamed.allowed_nats(unit_of(subject))
    oracles.assert_close("sum in nats", renamed.nats(subject), case.nats(subject), allowed, formula)
    expected = case.gradient(subject)[..., tokens][:, positions]
    assert_same_gradient(
        "the gradient", renamed.gradient(subject), expected, 2 * case.allowed_gradient(unit_of(subject)), formula
    )


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_kl_is_a_divergence(subject: Any, case: KdCase) -> None:
    """KL >= 0, and with the teacher as its own student both loss and gradient are 0."""
    seen = case.nats(subject)
    assert seen >= -case.allowed_nats(unit_of(subject)), (
        f"KL(teacher ‖ student) is {seen:.9g} nats; a divergence is never negative"
    )
    itself = case.but(student=case.teacher)
    oracles.assert_close(
        "KL(teacher ‖ teacher) in nats",
        itself.nats(subject),
        0.0,
        itself.allowed_nats(unit_of(subject)),
        "zero on itself",
    )
    zero = torch.zeros_like(case.student)
    allowed = itself.allowed_gradient(unit_of(subject))
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
        "τ²·KL at τ = 2000 in nats",
        seen,
        limit,
        0.01 * limit + case.allowed_nats(unit_of(subject)),
        "‖centred s - t‖² / 2V",
    )


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_batch_is_the_sum_of_its_elements(subject: Any, case: KdCase) -> None:
    """Each element has its own loss and gradient, whatever else is in the batch; twice the batch is twice the sum."""
    whole, allowed = case.loss(subject), 2 * case.allowed_nats(unit_of(subject))
    parts = {
        (b, t): case.but(
            student=case.student[b, t][None, None],
            teacher=case.teacher[b, t][None, None],
            labels=case.labels[b, t][None, None],
        )
        for b, t in case.scored.nonzero().tolist()
    }
    alone = math.fsum(part.nats(subject) for part in parts.values())
    oracles.assert_close("sum in nats", float(whole.sum), alone, allowed, "its positions, each computed alone")
    gradients = torch.zeros(case.student.shape, dtype=torch.float64)
    for place, part in parts.items():
        gradients[place] = part.gradient(subject)[0, 0].double()
    formula = "its positions, each computed alone"
    assert_same_gradient(
        "the gradient", case.gradient(subject), gradients, 2 * case.allowed_gradient(unit_of(subject)), formula
    )
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
        2 * case.allowed_gradient(unit_of(subject)),
        "the same twice",
    )


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
