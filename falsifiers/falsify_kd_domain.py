"""Attacks on the domain of a distillation loss: what isn't scored, impossible tokens, and what is refused.

The subject is that of `falsify_kd_loss`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers import oracles
from falsifiers.falsify_kd_loss import (
    ANYWHERE,
    TERMS_APART,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
)
from falsifiers.strategies import (
    HALVES,
    IGNORED,
    LOGITS,
    NO_TOKEN,
    POSITIVE_WEIGHTS,
    KdCase,
    kd_cases,
    unit_of,
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
        assert_same_gradient(what, gradient, case.oracle_gradient(), 2 * case.allowed_gradient(unit_of(subject)))


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
    assert_same_gradient("autograd", gradient, case.oracle_gradient(), 2 * case.allowed_gradient(unit_of(subject)))
    assert_gradient_is_the_oracles(subject, case)


@given(case=kd_cases(banned=ANYWHERE), padding=st.integers(1, 3))
def falsify_appended_impossible_tokens(subject: Any, case: KdCase, padding: int) -> None:
    """A vocabulary padded with -inf on both sides is the same vocabulary."""
    pad = torch.full((*case.labels.shape, padding), NO_TOKEN, dtype=case.student.dtype)
    padded = case.but(student=torch.cat([case.student, pad], -1), teacher=torch.cat([case.teacher, pad], -1))
    seen, before = padded.nats(subject), case.nats(subject)
    formula = "the same vocabulary without the padding"
    allowed = case.allowed_nats(unit_of(subject)) + padded.allowed_nats(unit_of(subject))
    oracles.assert_close(f"sum with {padding} tokens of padding", seen, before, allowed, formula)
    expected = torch.cat([case.gradient(subject), torch.zeros_like(pad)], -1)
    allowed = case.allowed_gradient(unit_of(subject)) + padded.allowed_gradient(unit_of(subject))
    assert_same_gradient("the gradient with padding", padded.gradient(subject), expected, allowed, formula)


@given(
    case=kd_cases(smallest_vocabulary=2, logits=HALVES, ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS),
    padding=st.integers(1, 3),
    logit=HALVES,
    longer=st.sampled_from(["student", "teacher"]),
)
def falsify_padded_vocabulary(subject: Any, case: KdCase, padding: int, logit: float, longer: str) -> None:
    """Padding of one model's output layer names no tokens: it is cut off, by the caller or the loss, or refused.

    Of the divergence alone: cross-entropy reads one model, and knows of no other vocabulary. From two tokens on: torch
    itself broadcasts a vocabulary of one against any other.
    """
    pad = torch.full((*case.labels.shape, padding), logit, dtype=case.student.dtype)
    padded = case.but(**{longer: torch.cat([getattr(case, longer), pad], -1)})
    cut = padded.but(**{longer: getattr(padded, longer)[..., : case.student.shape[-1]]})
    formula, allowed = "the vocabulary without the padding", 2 * case.allowed_nats(unit_of(subject))
    what = f"sum in nats, {padding} columns of {longer} padding cut off"
    oracles.assert_close(what, cut.nats(subject), case.oracle_nats(), allowed, formula)
    try:
        seen = padded.nats(subject)
    except (ValueError, RuntimeError):
        return  # refused, by the loss or by torch
    what = f"sum in nats with {padding} columns of padding in the {longer}"
    oracles.assert_close(what, seen, case.oracle_nats(), allowed, formula)


@st.composite
def unscored_cases(draw: st.DrawFn, logits: list[float]) -> KdCase:
    shape = draw(st.sampled_from([(1, 1, 2), (2, 3, 4), (0, 3, 4), (2, 0, 4), (0, 0, 1)]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    filled = torch.full(shape, draw(st.sampled_from(logits)), dtype=dtype)
    weights = draw(st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]))
    return KdCase(filled, filled.clone(), torch.full(shape[:2], IGNORED), 2.0, *weights)


@given(case=unscored_cases([math.nan, math.inf, -math.inf]))
def falsify_nothing_scored_of_broken_logits(subject: Any, device: str, case: KdCase) -> None:
    """The same whatever the logits are that nobody scored."""
    assert_nothing(subject, device, case)


@given(case=unscored_cases([0.0, 1e3]))
def falsify_nothing_scored(subject: Any, device: str, case: KdCase) -> None:
    """Sum 0, count 0, zero gradients; and backward works, so that such a batch can take part in a step."""
    assert_nothing(subject, device, case)


def assert_nothing(subject: Any, device: str, case: KdCase) -> None:
    loss = case.loss(subject, device)
    assert (float(loss.sum), int(loss.count)) == (0.0, 0), (
        f"sum and count are {float(loss.sum)} and {int(loss.count)} where nothing is scored; expected 0 and 0"
    )
    for what, gradient in (("gradient", case.gradient(subject, device)), ("autograd", case.autograd(subject, device))):
        assert gradient.shape == case.student.shape and not bool(gradient.any()), (
            f"{what} is {gradient.tolist()} where nothing is scored; expected zeros of shape {list(case.student.shape)}"
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


@given(case=kd_cases())
def falsify_the_divergence_asks_nothing_of_the_teacher(subject: Any, case: KdCase) -> None:
    """`forward_kl` called on its own: a teacher that asks for a gradient gets no graph."""
    teacher = case.teacher[case.scored].clone().requires_grad_()
    divergence = subject.forward_kl(case.student[case.scored], teacher, case.temperature)
    assert not divergence.requires_grad, "the divergence hangs on the teacher's graph; expected a plain tensor"


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
    ("a teacher's logits that are integers", _case(teacher=torch.zeros(1, 3, 4).long()), ("teacher", "float")),
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
        for tau in (0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e200, 9.9e-5, 10001.0)
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
    """Everything outside the domain is refused by loss and gradient alike, with what was read; its edge is inside."""
    complaints = [
        oracles.refusal_complaint(f"{what}, {name}", lambda call=call, case=case: call(case), *words)
        for what, case, words in REFUSED
        for name, call in (("loss", lambda c: c.loss(subject)), ("gradient", lambda c: c.gradient(subject)))
    ]
    found = [complaint for complaint in complaints if complaint]
    assert not found, "\n".join(found)
    for temperature in (1e-4, 1e4):
        assert_loss_is_the_oracles(subject, _case(temperature=temperature))


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
