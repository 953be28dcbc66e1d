"""Attacks on the settings of a divergence, on unscored positions, and on the arguments."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.kd_divergences.cases import NAMED, Divergence
from falsifiers.support import oracles
from falsifiers.support.strategies import KdCase, kd_cases

REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"divergence": name}, "divergence") for name in ("jsd", "", None, "Forward_KL", 0)),
    *(({"beta": beta}, "beta") for beta in (-1e-9, 1 + 1e-9, math.nan, math.inf, "0.5", None, True)),
]


def falsify_settings_are_refused(subject: Any) -> None:
    zeros, labels = torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64)
    usual = {"temperature": 1.0, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": "jensen_shannon"}
    found = [
        oracles.refusal_complaint(
            f"{name}({changed})",
            lambda call=call, changed=changed: call(zeros, zeros, labels, **{**usual, **changed}),
            f"'{key}'",
            *map(repr, changed.values()),
        )
        for changed, key in REFUSED
        for name, call in (("kd_loss", subject.kd_loss), ("kd_logit_gradient", subject.kd_logit_gradient))
    ]
    assert not any(found), "\n".join(filter(None, found))


@given(case=kd_cases(), named=NAMED, value=st.sampled_from([math.nan, math.inf, -math.inf, 1e3]))
def falsify_unscored_positions_and_arguments(
    subject: Any, device: str, case: KdCase, named: tuple[str, float], value: float
) -> None:
    filled = case.but(
        **{name: getattr(case, name).masked_fill(~case.scored[..., None], value) for name in ("student", "teacher")}
    )
    first, second = (Divergence(each, *named) for each in (case, filled))
    kept = [x.clone() for x in filled.tensors(None)]
    sums = [float(each.call(subject.kd_loss, device).sum) for each in (first, second)]
    gradients = [each.call(subject.kd_logit_gradient, device).cpu() for each in (first, second)]
    assert sums[0] == sums[1], f"the sum changed from {sums[0]} to {sums[1]} with {value} at unscored positions"
    assert torch.equal(*gradients), f"the gradient changed from {gradients[0].tolist()} to {gradients[1].tolist()}"
    for before, after in zip(kept, filled.tensors(None), strict=True):
        assert torch.equal(before.nan_to_num(7.0), after.nan_to_num(7.0)), "an argument was changed"
