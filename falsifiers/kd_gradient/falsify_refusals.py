"""Attacks on the input checks of a distillation loss, at once and deferred, and on the dtypes of labels."""

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
    (
        "-100 where -1 is ignored",
        _case(labels=torch.tensor([[1, -1, -100]]), ignore_index=-1),
        ("label -100", "(0, 2)"),
    ),
    ("a teacher of another vocabulary", _case(teacher=torch.zeros(1, 3, 5).double()), ("4", "5")),
    ("a teacher of another length", _case(teacher=torch.zeros(1, 2, 4).double()), ("[1, 2, 4]", "[1, 3, 4]")),
    ("a teacher on another device", _case(teacher=torch.zeros(1, 3, 4, device="meta").double()), ("meta",)),
    ("labels on another device", _case(labels=torch.zeros(1, 3, device="meta").long()), ("meta",)),
    ("labels that would broadcast", _case(labels=torch.tensor([[1]])), ("[1, 1]",)),
    ("labels that are floats", _case(labels=torch.tensor([[1.0, 2.0, 3.0]])), ("labels",)),
    ("logits that are integers", _case(student=torch.zeros(1, 3, 4, dtype=torch.int64)), ("student",)),
    ("logits without a batch axis", _case(student=torch.zeros(3, 4).double()), ("student", "[3, 4]")),
    ("NaN in a teacher of weight 0", _case(teacher=_logits(2, math.nan), kd_weight=0.0), ("teacher", "(0, 2)", "nan")),
    *(
        (f"temperature {tau}", _case(temperature=tau), ("temperature",))
        for tau in (0.0, math.nan, math.inf, 9.9e-5, 10001.0)
    ),
    *(
        (f"{name} {w!r}", _case(**{name: w}), (name, repr(w)))
        for name in ("ce_weight", "kd_weight")
        for w in (-0.1, math.nan, "1")
    ),
    *((f"temperature {tau!r}", _case(temperature=tau), ("temperature", repr(tau))) for tau in (None, True)),
    *((f"{name} in an empty batch", _empty(**{name: -1.0}), (name, "-1")) for name in KdCase.__slots__[3:6]),
    *((f"ignore_index {i!r}", _case(ignore_index=i), ("ignore_index", repr(i))) for i in (None, 0.5)),
    ("no tensor for a student", _case(student=[[[0.0] * 4] * 3]), ("student", "list")),
]


def falsify_invalid_inputs_are_refused(subject: Any) -> None:
    for what, case, words in REFUSED:
        for name, call in (("loss", case.loss), ("gradient", case.gradient)):
            oracles.assert_refused(f"{what}, {name}", lambda call=call: call(subject), *words)
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
    """value: an integer is a label outside of the vocabulary, another number is in a row of logits.

    alone: whether nothing else is scored.
    """
    scored, V = case.scored.nonzero().tolist(), case.student.shape[-1]
    b, t = scored[where % len(scored)]
    labels = torch.full_like(case.labels, IGNORED) if alone else case.labels.clone()
    if isinstance(value, int):
        labels[b, t] = label = value if value < 0 else V + value
        broken, words = case.but(labels=labels), (f"label {label}",)
    else:
        logits, labels[b, t] = getattr(case, whose).clone(), case.labels[b, t]
        logits[b, t, slice(None) if value == NO_TOKEN else element % V] = value
        broken, words = case.but(labels=labels, **{whose: logits}), (whose, f"maximum {value},")
    for name, call in (("loss", broken.loss), ("gradient", broken.gradient)):
        oracles.assert_refused(f"{value} at ({b}, {t}), {name}", lambda call=call: call(subject), f"({b}, {t})", *words)
