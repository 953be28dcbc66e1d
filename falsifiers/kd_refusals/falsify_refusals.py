"""Attacks on the input checks of a distillation loss: input outside the domain is refused, and the value is stated."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.comparison import assert_loss_is_the_oracles
from falsifiers.support.strategies import HALVES, IGNORED, NO_TOKEN, KdCase, kd_cases


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
    ("a label one past the vocabulary", _case(labels=torch.tensor([[1, 4, 3]])), ("label 4", "(0, 1)")),
    ("a label far past the vocabulary", _case(labels=torch.tensor([[1, 50257, 3]])), ("50257", "(0, 1)")),
    ("a negative label that isn't the ignored one", _case(labels=torch.tensor([[1, 2, -1]])), ("label -1", "(0, 2)")),
    (
        "-100 where -1 is ignored",
        _case(labels=torch.tensor([[1, -1, -100]]), ignore_index=-1),
        ("label -100", "(0, 2)"),
    ),
    ("a teacher of another vocabulary", _case(teacher=torch.zeros(1, 3, 5).double()), ("4", "5")),
    ("a teacher of vocabulary 1", _case(teacher=torch.zeros(1, 3, 1).double()), ("4", "1")),
    (
        "another vocabulary, nothing scored",
        _case(teacher=torch.zeros(1, 3, 5).double(), labels=torch.full((1, 3), IGNORED)),
        ("4", "5"),
    ),
    ("a teacher of another length", _case(teacher=torch.zeros(1, 2, 4).double()), ("[1, 2, 4]", "[1, 3, 4]")),
    ("a teacher of length 1", _case(teacher=torch.zeros(1, 1, 4).double()), ("[1, 1, 4]",)),
    ("a teacher of another batch", _case(teacher=torch.zeros(2, 3, 4).double()), ("[2, 3, 4]",)),
    ("a teacher on another device", _case(teacher=torch.zeros(1, 3, 4, device="meta").double()), ("meta",)),
    ("labels on another device", _case(labels=torch.zeros(1, 3, device="meta").long()), ("meta",)),
    ("labels of another length", _case(labels=torch.tensor([[1, 2]])), ("[1, 2]",)),
    ("labels that would broadcast", _case(labels=torch.tensor([[1]])), ("[1, 1]",)),
    ("labels that are floats", _case(labels=torch.tensor([[1.0, 2.0, 3.0]])), ("labels",)),
    ("labels that are a mask", _case(labels=torch.tensor([[True, False, True]])), ("labels",)),
    ("logits that are integers", _case(student=torch.zeros(1, 3, 4, dtype=torch.int64)), ("student",)),
    ("a teacher's logits that are integers", _case(teacher=torch.zeros(1, 3, 4).long()), ("teacher",)),
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
    ("another vocabulary in an empty batch", _empty(teacher=torch.zeros(0, 3, 5).double()), ("4", "5")),
    *((f"ignore_index {i!r}", _case(ignore_index=i), ("ignore_index", repr(i))) for i in (None, 0.5, "0")),
    ("no tensor for a student", _case(student=[[[0.0] * 4] * 3]), ("student", "list")),
    ("no tensor for labels", _case(labels=[[1, 2, 3]]), ("labels", "list")),
]


def falsify_invalid_inputs_are_refused(subject: Any) -> None:
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
def falsify_labels_outside_the_vocabulary_are_refused(
    subject: Any, case: KdCase, beyond: int, below: bool, where: int, alone: bool
) -> None:
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
def falsify_invalid_rows_are_refused(
    subject: Any, case: KdCase, value: float, whose: str, where: int, element: int, alone: bool
) -> None:
    """A scored row with NaN or +inf, or with only -inf, is refused; the message states model, position and value.

    Shapes go down to one element, one position and one token; the row may be the only scored one.
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
        oracles.assert_refused(what, lambda call=call: call(subject), whose, f"({b}, {t})", f"maximum {value},")
