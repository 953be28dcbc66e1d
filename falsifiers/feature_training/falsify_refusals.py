"""Attacks on the checks of feature matching: states, masks, layers and settings that do not fit are refused.

The subject has `feature_loss`, as `distillation.features` does.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from falsifiers.feature_matching.cases import FeatureCase, feature_cases
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.oracles import assert_refused

STATES, MASK = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
GIVEN: dict[str, Any] = {
    "student": [STATES, STATES],
    "teacher": [STATES, STATES, STATES],
    "scored_BT": MASK,
    "layers": [(0, 0), (1, -1)],
    "distance": "l2",
}

REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("another width", {"teacher": [torch.zeros(2, 3, 8)] * 3}, ("[6, 4]", "[6, 8]", "torch.nn.Linear(4, 8)")),
    ("a teacher of another length", {"teacher": [torch.zeros(2, 2, 4)] * 3}, ("[2, 3, 4]", "[2, 2, 4]", "[B, T, W]")),
    ("a mask of another length", {"scored_BT": torch.ones(2, 2, dtype=torch.bool)}, ("mask [2, 2]",)),
    ("labels for a mask", {"scored_BT": torch.ones(2, 3, dtype=torch.int64)}, ("int64", "bool", "ignore_index")),
    ("states that are integers", {"student": [STATES.long()] * 2}, ("student", "int64", "[2, 3, 4]", "floating")),
    ("states without a batch", {"student": [STATES[0]] * 2}, ("student", "[3, 4]", "[B, T, width]")),
    ("a teacher on another device", {"teacher": [STATES.to("meta")] * 3}, ("cpu, meta, cpu", "one device")),
    ("a mask on another device", {"scored_BT": MASK.to("meta")}, ("cpu, cpu, meta", "one device")),
    (
        "a projection onto another width",
        {"projections": [nn.Identity(), nn.Linear(4, 3)]},
        ("[6, 3] after the projection", "[6, 4]", "Linear(4, 4)"),
    ),
    *((f"the distance {x!r}", {"distance": x}, (repr(x), "cosine", "l2")) for x in ("mse", None)),
    ("no pairs", {"layers": []}, ("no pairs",)),
    *(
        (
            f"the pair {pair}",
            {"layers": [(0, 0), pair]},
            (f"layer {index} of the {model}", str(pair), f"{count} layers"),
        )
        for pair, index, model, count in (
            ((2, 0), 2, "student", 2),
            ((0, -4), -4, "teacher", 3),
        )
    ),
    ("too few projections", {"projections": [nn.Identity()]}, ("1 projections", "2 pairs")),
]


def falsify_settings_that_do_not_fit_are_refused(subject: Any) -> None:
    for what, changes, words in REFUSED:
        assert_refused(what, lambda given=changes: _loss(subject, given), *words)
    for accepted in ({}, {"layers": [(-2, -3)]}, {"layers": [(1, 2)] * 4}, {"projections": [nn.Identity()] * 2}):
        loss = _loss(subject, accepted)
        assert float(loss.sum) == 0.0, f"sum is {loss.sum} for zero states; expected 0"


def _loss(subject: Any, changes: dict[str, Any]) -> Any:
    given = {**GIVEN, **changes}
    return subject.feature_loss(given.pop("student"), given.pop("teacher"), given.pop("scored_BT"), **given)


@given(case=feature_cases(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_states_stay_on_their_device(subject: Any, case: FeatureCase, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    alone = case.loss(subject)
    expected = [alone.sum.detach(), alone.count, *case.gradients(subject)]
    with fake_cuda():
        loss = case.loss(subject, "cuda")
        assert loss.sum.is_cuda and loss.count.is_cuda, f"sum and count are on {loss.sum.device}, {loss.count.device}"
        seen = [x.cpu() for x in (loss.sum.detach(), loss.count, *case.gradients(subject, "cuda"))]
    assert all(map(torch.equal, seen, expected)), f"on cuda:0 the results are {seen}; expected {expected}"
