"""Attacks on the gradient and the sums of a window: those of one batch with all of its sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.cases import IGNORED
from falsifiers.support.windows import (
    NOTHING_SCORED,
    V,
    WindowCase,
    assert_gradients,
    gradients_of,
    learners,
    window_cases,
)

DTYPES = st.sampled_from([torch.float64, torch.float32])


@given(case=window_cases(), dtype=DTYPES)
def falsify_any_split_gives_the_gradient_of_the_whole(
    subject: Any, device: str, case: WindowCase, dtype: torch.dtype
) -> None:
    teacher, student, module = learners(case, device, dtype)
    subject.kd_window(teacher, student, case.batches(device=device), case.weights)
    what = f"{[len(each) for each in case.split[0]]} sequences in the micro-batches"
    assert_gradients(what, gradients_of(module), case.gradient(), case.allowed(dtype))


@given(case=window_cases(), metrics=st.booleans())
def falsify_sums_of_a_window(subject: Any, device: str, case: WindowCase, metrics: bool) -> None:
    """Sums and counts are those of all micro-batches, undivided; metrics add terms of weight 0."""
    teacher, student, _ = learners(case, device)
    settings = {"metrics": True} if metrics else {}  # no metrics is the default
    window = subject.kd_window(teacher, student, case.batches(device=device), case.weights, **settings)
    counts = {"count": window.count, "total": window.total, "sequences": window.sequences}
    seen = {name: (int(each), each.dtype) for name, each in counts.items()}
    expected = {"count": case.count(), "total": case.count(), "sequences": case.sequences()}
    assert seen == {name: (each, torch.int64) for name, each in expected.items()}, (
        f"counts are {seen}; expected {expected}, int64"
    )
    weight = {"loss": 1.0, "hard_loss": case.ce_weight, "soft_loss": case.kd_weight, "kl_at_T": 0.0}
    nats = {name: each for name, each in case.nats().items() if metrics or weight[name]}
    lacking, more = nats.keys() - window.sums.keys(), window.sums.keys() - nats.keys()
    assert not lacking and (metrics or not more), f"sums are {sorted(window.sums)}; expected {sorted(nats)}"
    for name, each in nats.items():
        assert window.sums[name].dtype is torch.float64, f"{name} is {window.sums[name].dtype}; expected float64"
        formula = "the sum over all micro-batches"
        oracles.assert_close(f"{name} in nats", float(window.sums[name]), each, case.allowed_nats(), formula)


@given(case=window_cases(), wrong=st.integers(0, 3))
def falsify_deferred_errors_of_a_window(subject: Any, device: str, case: WindowCase, wrong: int) -> None:
    batches = case.batches(device=device)
    at = wrong % len(batches)
    assume(len(batches[at].labels))
    batches[at].labels[0, 1] = V + 96
    teacher, student, _ = learners(case, device)
    window = subject.kd_window(teacher, student, batches, case.weights, deferred=True)
    seen = [bool(fault) for fault, _ in window.faults]
    assert seen == [m == at for m in range(len(batches))], (
        f"micro-batch {at} of {len(batches)} has a label outside the vocabulary; faults are {seen}"
    )
    labels = [labels_BT[:, :-1].tolist() for _, labels_BT in window.faults]
    expected = [batch.labels[:, 1:].tolist() for batch in batches]
    assert (labels, window.vocabulary) == (expected, V), (
        f"labels and vocabulary of the faults are {labels} and {window.vocabulary}; expected {expected} and {V}"
    )
    with pytest.raises(ValueError, match=f"{V + 96}"):
        subject.kd_window(teacher, student, batches, case.weights)
    batches[at].labels[0, 1] = IGNORED
    assert subject.kd_window(teacher, student, batches, case.weights).faults == (), "errors are not deferred"


@given(case=window_cases(), fillers=st.integers(1, 3))
def falsify_nothing_scored(subject: Any, device: str, case: WindowCase, fillers: int) -> None:
    case = case.but(samples=(NOTHING_SCORED,) * fillers, split=(tuple((n,) for n in range(fillers)),))
    teacher, student, module = learners(case, device)
    window = subject.kd_window(teacher, student, case.batches(device=device), case.weights)
    sums = {name: float(each) for name, each in window.sums.items()}
    assert (int(window.total), set(sums.values())) == (0, {0.0}), (
        f"sums {sums} of {int(window.total)} tokens; expected 0"
    )
    assert_gradients("nothing is scored", gradients_of(module), case.gradient(), case.allowed())
