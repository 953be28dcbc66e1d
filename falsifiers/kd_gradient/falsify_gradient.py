"""Attacks on a distillation loss and its gradient: rows, modes, devices, precision, and refusals of inputs."""

import math
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.cases import (
    ANYWHERE,
    HALVES,
    IGNORE_INDICES,
    IGNORED,
    NO_TOKEN,
    KdCase,
    assert_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
    kd_cases,
    unit_of,
)
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.oracles import DIVERGENCES
from falsifiers.support.torch_modes import MODES, WITHOUT_GRAPH

FLOATS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


def _loss_and_gradient(subject: Any, case: KdCase, device: str, with_autograd: bool) -> dict[str, Tensor]:
    loss = case.loss(subject, device)
    results = {"sum": loss.sum.detach(), "count": loss.count, "gradient": case.gradient(subject, device)}
    return {**results, "autograd": case.autograd(subject, device)} if with_autograd else results


@given(case=kd_cases(banned=ANYWHERE), dtype=FLOATS)
def falsify_loss_is_independent_of_torch_modes(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    outside = _loss_and_gradient(subject, case, device, True)
    for name, mode in MODES.items():
        with mode(device):
            inside = _loss_and_gradient(subject, case, device, name not in WITHOUT_GRAPH)
        for key, x in inside.items():
            is_equal = x.dtype is outside[key].dtype and torch.equal(x, outside[key])
            assert is_equal, f"{key} is {x} under {name}; expected {outside[key]} in {outside[key].dtype}"


@given(case=kd_cases(banned=ANYWHERE), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_loss_stays_on_its_device(subject: Any, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    expected = case.loss(subject), case.gradient(subject), case.autograd(subject)
    with fake_cuda():
        loss, closed_form = case.loss(subject, "cuda"), case.gradient_on_device(subject, "cuda")
        for name, x in (("sum", loss.sum), ("count", loss.count), ("gradient", closed_form)):
            assert x.is_cuda, f"the {name} is on {x.device}; expected cuda:0, the device of the logits"
        seen = loss, closed_form.cpu(), case.autograd(subject, "cuda")
        assert float(seen[0].sum) == float(expected[0].sum), f"sum is {seen[0].sum}; expected {expected[0].sum}"
    for name, x, y in (("gradient", seen[1], expected[1]), ("autograd", seen[2], expected[2])):
        assert torch.equal(x, y), f"{name} is {x.tolist()} on cuda:0; expected {y.tolist()}, as on the CPU"


@given(
    case=kd_cases(dtype=torch.float32), integers=st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8])
)
def falsify_inputs_are_not_modified(subject: Any, case: KdCase, integers: torch.dtype) -> None:
    case = case.but(labels=case.labels.to(integers))
    student, teacher = case.student.transpose(0, 2).contiguous().transpose(0, 2), case.teacher.mT.contiguous().mT
    strided = case.but(student=student.requires_grad_(), teacher=teacher.requires_grad_())
    before = [x.detach().clone() for x in strided.tensors(None)]
    total = strided.loss(subject).sum
    scaled_by_3, unscaled = (
        torch.autograd.grad(total, strided.student, torch.full_like(total, x), retain_graph=True)[0] for x in (3.0, 1.0)
    )
    assert torch.allclose(scaled_by_3, 3 * unscaled, rtol=1e-5), f"backward of 3: {scaled_by_3}; 3 * {unscaled}"
    torch.set_num_threads(2)
    (loss, gradient), repeated = [(strided.loss(subject).sum, strided.gradient(subject)) for _ in range(2)]
    threads = torch.get_num_threads()
    assert threads == 2, f"number of threads after the call: {threads}; expected 2, as before"
    for name, x, original in zip(("student", "teacher", "labels"), strided.tensors(None), before, strict=True):
        assert torch.equal(x, original), f"the call changed {name} from {original.tolist()} to {x.tolist()}"
    loss.backward()
    assert strided.teacher.grad is None, f"the teacher's .grad is {strided.teacher.grad}; expected None"
    assert not gradient.requires_grad, "the closed-form gradient has a graph; expected none"
    is_equal = torch.equal(loss, repeated[0]) and torch.equal(gradient, repeated[1])
    assert is_equal, f"equal calls return {(loss, gradient)}, then {repeated}"
    detached = strided.but(student=strided.student.detach(), teacher=strided.teacher.detach())
    assert_is_the_oracles(subject, detached, unit=2.0**-24)


@given(
    case=kd_cases(banned=st.sampled_from(["none", "none", "same"]), ignored=IGNORE_INDICES),
    scale=st.sampled_from([1.0, 2.0**-26]),
)
def falsify_gradient_against_autograd(subject: Any, device: str, case: KdCase, scale: float) -> None:
    # With a student close to its teacher, a divergence may be rounded below 0. Clamping it to 0 loses the gradient.
    difference = torch.where(case.teacher.isinf(), 0.0, case.student - case.teacher)
    case = case.but(student=case.teacher + scale * difference)
    seen, expected = case.gradient(subject, device), case.autograd(subject, device)
    allowed = 2 * case.allowed_gradient(unit_of(subject))
    assert_same_gradient("the gradient", seen, expected, allowed, "autograd of the subject's own loss")


METRICS = ("kl_at_1", "kl", "teacher_cross_entropy", "teacher_entropy", "agreement")
_BANNED = torch.tensor([[[-math.inf, 0.0]]], dtype=torch.float64)
INFINITE_TERM = KdCase(_BANNED, _BANNED, torch.zeros(1, 1, dtype=torch.int64), ce_weight=0.0)
"""A case whose cross-entropy is infinite and has weight 0."""
BETA = 0.3


def _expected(case: KdCase, student: list[float], teacher: list[float], label: int, name: str) -> dict[str, float]:
    """Return the terms and metrics of a row by the oracle, in the order of the columns of the result."""
    log_p, tau = oracles.log_softmax(teacher), case.temperature
    predictions = [max(range(len(row)), key=row.__getitem__) for row in (student, teacher)]
    return {
        "cross_entropy": oracles.cross_entropy(student, label),
        "divergence": oracles.row_divergence(student, teacher, tau, name, BETA),
        "kl_at_1": oracles.forward_kl(student, teacher, 1.0),
        "kl": oracles.forward_kl(student, teacher, tau),
        "teacher_cross_entropy": oracles.cross_entropy(teacher, label),
        "teacher_entropy": -math.fsum(math.exp(x) * x for x in log_p if x > -math.inf),
        "agreement": float(predictions[0] == predictions[1]),
    }


@example(case=INFINITE_TERM, divergence="forward_kl", metrics=True, select=True)
@given(
    case=kd_cases(banned=ANYWHERE),
    divergence=st.sampled_from(sorted(oracles.DIVERGENCES)),
    metrics=st.booleans(),
    select=st.booleans(),
)
def falsify_numbers_of_rows(
    subject: Any, device: str, case: KdCase, divergence: str, metrics: bool, select: bool
) -> None:
    # NaN in unscored rows: they must not take part in any number.
    with_nan = {
        name: getattr(case, name).masked_fill(~case.scored[..., None], math.nan) for name in ("student", "teacher")
    }
    weights, tensors = subject.Weights(**case.settings, divergence=divergence, beta=BETA), case.but(**with_nan).tensors
    options = {"ignore_index": case.ignore_index, "metrics": metrics, "select": select}
    rows = subject.loss_by_blocks(*tensors(device), weights, **options)
    expected = torch.zeros(7, *case.labels.shape, dtype=torch.float64)
    allowed = 0.0
    for (b, t), student, teacher, label in case.rows():
        numbers = _expected(case, student, teacher, label, divergence)
        expected[:, b, t] = torch.tensor(list(numbers.values()), dtype=torch.float64)
        unit = oracles.UNIT_ROUNDOFF[torch.float64]
        for tau in (1.0, case.temperature):
            allowed = max(allowed, oracles.allowed_divergence(student, teacher, tau, unit))
    for term, weight in enumerate((case.ce_weight, case.kd_weight)):
        if not (weight or metrics):
            expected[term] = 0.0
    _assert_numbers(rows, expected.flatten(1), 2 + 5 * metrics, allowed)
    unrequested = [name for name in METRICS if getattr(rows, f"{name}_P").numel()]
    assert metrics or not unrequested, f"metrics that were not requested have values: {unrequested}"
    assert rows.gradient_BTV.numel() == 0, f"gradient of shape {list(rows.gradient_BTV.shape)} without a scale"
    _assert_weighted(subject, rows, weights, case)


def _assert_numbers(rows: Any, expected: Tensor, count: int, allowed: float) -> None:
    for name, target_P in list(zip(("cross_entropy", "divergence", *METRICS), expected, strict=True))[:count]:
        seen = getattr(rows, f"{name}_P")
        assert (seen.dtype, seen.shape) == (torch.float64, target_P.shape), f"{name} is {seen.dtype} {list(seen.shape)}"
        for p, (value, target) in enumerate(zip(seen.cpu().tolist(), target_P.tolist(), strict=True)):
            oracles.assert_close(f"{name} of row {p}", value, target, allowed, "the oracle's")


def _assert_weighted(subject: Any, rows: Any, weights: Any, case: KdCase) -> None:
    """Assert that the weighted sum has no term of weight 0, even if it is infinite."""
    terms = (case.ce_weight, rows.cross_entropy_P), (case.kd_weight * case.temperature**2, rows.divergence_P)
    expected = math.fsum(weight * nats for weight, nats_P in terms if weight for nats in nats_P.tolist())
    seen = float(subject.weighted_sum(rows, weights))
    oracles.assert_close("the weighted sum", seen, expected, 1e-12 * abs(expected), "the sum of weighted terms")


SCATTERED = KdCase(torch.arange(6.0).view(1, 3, 2), torch.ones(1, 3, 2), torch.tensor([[0, IGNORED, 1]]))
"""A case whose scored positions are not adjacent."""


@example(case=SCATTERED, dtypes=[torch.float32, torch.float64])
@given(case=kd_cases(dtype=torch.float32, logits=HALVES), dtypes=st.permutations([torch.float64, torch.float32]))
def falsify_wider_dtype_is_used(subject: Any, device: str, case: KdCase, dtypes: list[torch.dtype]) -> None:
    mixed = case.but(student=case.student.to(dtypes[0]), teacher=case.teacher.to(dtypes[1]))
    loss = mixed.loss(subject, device)
    assert (loss.sum.dtype, loss.count.dtype) == (torch.float64, torch.int64), (
        f"sum and count are {loss.sum.dtype} and {loss.count.dtype}; expected float64 and int64"
    )
    assert_loss_is_the_oracles(subject, mixed, device)
    gradient = mixed.gradient(subject, device)
    assert gradient.dtype is dtypes[0], f"the gradient is {gradient.dtype}; expected the student's, {dtypes[0]}"


VOCABULARY = 152_064
# Half a unit in the last place of a float32 logit of 64, in nats. A float32 `log_softmax` of torch has errors of 2e-5.
ALLOWED_NATS = 4e-6
ALLOWED_GRADIENT = 2e-5


@given(
    divergence=st.sampled_from(sorted(DIVERGENCES)),
    seed=st.integers(0, 2**16),
    rows=st.integers(3, 7),
    unscored=st.integers(0, 2),
)
def falsify_long_rows(subject: Any, device: str, divergence: str, seed: int, rows: int, unscored: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    student_BTV, teacher_BTV = 5 * torch.randn(2, 1, rows, VOCABULARY, generator=generator)
    labels_BT = torch.randint(VOCABULARY, (1, rows), generator=generator)
    labels_BT[0, torch.randperm(rows, generator=generator)[:unscored]] = IGNORED
    weights = subject.Weights(temperature=1.0, ce_weight=0.5, kd_weight=0.5, divergence=divergence, beta=BETA)
    tensors = (x.to(device) for x in (student_BTV, teacher_BTV, labels_BT))
    seen = subject.loss_by_blocks(*tensors, weights, ignore_index=IGNORED, scale=1.0, metrics=True)
    leaf_BTV, scored = student_BTV.double().requires_grad_(), labels_BT != IGNORED
    expected = _textbook(leaf_BTV[scored], teacher_BTV[scored].double(), labels_BT[scored], divergence)
    for name, expected_N in expected.items():
        error = (getattr(seen, f"{name}_P").cpu()[scored[0]] - expected_N).abs().max().item()
        assert error <= ALLOWED_NATS, f"{name} has an error of {error:.2g} nats; allowed are {ALLOWED_NATS}"
    (expected["cross_entropy"] + expected["divergence"]).sum().mul(0.5).backward()
    error = (seen.gradient_BTV.cpu() - leaf_BTV.grad).abs().max().item()
    assert error <= ALLOWED_GRADIENT, f"{rows} rows, {unscored} unscored: the gradient has an error of {error:.2g}"


def _textbook(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor, divergence: str) -> dict[str, Tensor]:
    log_p_NV, log_q_NV = teacher_NV.log_softmax(-1), student_NV.log_softmax(-1)
    return {
        "cross_entropy": -log_q_NV.gather(1, labels_N[:, None])[:, 0],
        "divergence": DIVERGENCES[divergence].textbook(log_p_NV, log_q_NV, BETA),
        **dict.fromkeys(("kl_at_1", "kl"), DIVERGENCES["forward_kl"].textbook(log_p_NV, log_q_NV, BETA)),
        "teacher_cross_entropy": -log_p_NV.gather(1, labels_N[:, None])[:, 0],
        "teacher_entropy": -(log_p_NV.exp() * log_p_NV).sum(-1),
    }


def _case(**changes: Any) -> KdCase:
    logits = torch.arange(12, dtype=torch.float64).reshape(1, 3, 4) / 4
    return KdCase(logits, logits.flip(-1), torch.tensor([[1, IGNORED, 3]]), 2.0, 0.5, 0.5).but(**changes)


def _empty(**changes: Any) -> KdCase:
    case = _case()
    return case.but(student=case.student[:0], teacher=case.teacher[:0], labels=case.labels[:0]).but(**changes)


def _logits(position: int, *values: float) -> Tensor:
    """Return the student's logits with these first values at a position."""
    logits = _case().student.clone()
    logits[0, position, : len(values)] = torch.tensor(values, dtype=torch.float64)
    return logits


OUTSIDE = torch.tensor([[1, -1, -100]])
REFUSED: list[tuple[str, KdCase, tuple[str, ...]]] = [
    ("-100 where -1 is ignored", _case(labels=OUTSIDE, ignore_index=-1), ("label -100", "(0, 2)")),
    ("a teacher of another vocabulary", _case(teacher=torch.zeros(1, 3, 5).double()), ("4", "5")),
    ("a teacher of another length", _case(teacher=torch.zeros(1, 2, 4).double()), ("[1, 2, 4]", "[1, 3, 4]")),
    ("a teacher on another device", _case(teacher=torch.zeros(1, 3, 4, device="meta").double()), ("meta",)),
    ("labels on another device", _case(labels=torch.zeros(1, 3, device="meta").long()), ("meta",)),
    ("labels that would broadcast", _case(labels=torch.tensor([[1]])), ("[1, 1]",)),
    ("labels that are floats", _case(labels=torch.tensor([[1.0, 2.0, 3.0]])), ("labels",)),
    ("logits that are integers", _case(student=torch.zeros(1, 3, 4, dtype=torch.int64)), ("student",)),
    ("logits without a batch axis", _case(student=torch.zeros(3, 4).double()), ("student", "[3, 4]")),
    ("NaN in a teacher of weight 0", _case(teacher=_logits(2, math.nan), kd_weight=0.0), ("teacher", "(0, 2)", "nan")),
    *((f"temperature {t}", _case(temperature=t), ("temperature",)) for t in (0.0, math.nan, math.inf, 9.9e-5, 10001.0)),
    *((f"ce_weight {w!r}", _case(ce_weight=w), ("ce_weight", repr(w))) for w in (-0.1, math.nan, math.inf, "1")),
    *((f"kd_weight {w!r}", _case(kd_weight=w), ("kd_weight", repr(w))) for w in (-0.1, math.nan, math.inf, "1")),
    *((f"temperature {tau!r}", _case(temperature=tau), ("temperature", repr(tau))) for tau in (None, True)),
    *((f"{name} in an empty batch", _empty(**{name: -1.0}), (name, "-1")) for name in KdCase.__slots__[3:6]),
    *((f"ignore_index {i!r}", _case(ignore_index=i), ("ignore_index", repr(i))) for i in (None, 0.5)),
    ("a list as the student", _case(student=[[[0.0] * 4] * 3]), ("student", "list")),
]


def falsify_invalid_inputs_are_refused(subject: Any) -> None:
    for label, case, words in REFUSED:
        for name, call in (("loss", case.loss), ("gradient", case.gradient)):
            oracles.assert_refused(f"{label}, {name}", lambda call=call: call(subject), *words)
    for temperature in (1e-4, 1e4):
        assert_loss_is_the_oracles(subject, _case(temperature=temperature))


@given(
    case=kd_cases(logits=HALVES),
    value=st.sampled_from([math.nan, math.inf, -math.inf]) | st.integers(-8, 12),
    whose=st.sampled_from(["student", "teacher"]),
    where=st.integers(0, 5),
    element=st.integers(0, 4),
    alone=st.booleans(),
)
def falsify_invalid_values_are_refused(
    subject: Any, case: KdCase, value: float, whose: str, where: int, element: int, alone: bool
) -> None:
    """A case has one invalid label or logit.

    value: a negative label, or how far a label is beyond the vocabulary; a float is a logit of the model `whose`.
    where, element: choose the scored position and the logit.
    alone: whether no other position is scored.
    """
    scored, V = case.scored.nonzero().tolist(), case.student.shape[-1]
    b, t = scored[where % len(scored)]
    labels = torch.full_like(case.labels, IGNORED) if alone else case.labels.clone()
    if isinstance(value, int):
        labels[b, t] = label = value if value < 0 else V + value
        invalid, words = case.but(labels=labels), (f"label {label}",)
    else:
        logits, labels[b, t] = getattr(case, whose).clone(), case.labels[b, t]
        logits[b, t, slice(None) if value == NO_TOKEN else element % V] = value
        invalid, words = case.but(labels=labels, **{whose: logits}), (whose, f"maximum {value},")
    for name, call in (("loss", invalid.loss), ("gradient", invalid.gradient)):
        oracles.assert_refused(f"{value} at ({b}, {t}), {name}", lambda call=call: call(subject), f"({b}, {t})", *words)
