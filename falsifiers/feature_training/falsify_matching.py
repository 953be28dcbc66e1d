"""Attacks on what is matched, before and in a step. The subject is `reference_trainer.distillation.matching`."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.fake_cuda import fake_cuda

WIDTHS = st.lists(st.integers(1, 3), min_size=1, max_size=3)
B, T = 2, 3


def _states(widths: list[int], seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, T, width, generator=generator).to(device, dtype) for width in widths]


@given(student=WIDTHS, teacher=WIDTHS, data=st.data(), dtypes=st.tuples(*[st.sampled_from(["float32", "float64"])] * 2))
def falsify_a_projection_is_made_where_widths_differ(
    subject: Any, student: list[int], teacher: list[int], data: st.DataObject, dtypes: tuple[str, str]
) -> None:
    layer = st.tuples(st.integers(-len(student), len(student) - 1), st.integers(-len(teacher), len(teacher) - 1))
    layers = data.draw(st.lists(layer, min_size=1, max_size=3), label="layers")
    states = [_states(widths, 1, getattr(torch, kind)) for widths, kind in zip((student, teacher), dtypes, strict=True)]
    made = subject.new_matching(*states, layers=layers, distance="l2", seed=7)
    pairs = [(student[i], teacher[j]) for i, j in layers]
    expected = [] if all(S == W for S, W in pairs) else [None if S == W else (W, S) for S, W in pairs]
    shapes = [next((tuple(each.shape) for each in module.parameters()), None) for module in made.projections]
    what = f"widths {student} and {teacher}, layers {layers}"
    assert shapes == expected, f"{what}: the weights of the projections are {shapes}; expected {expected}"
    wide = torch.float64 if "float64" in dtypes else torch.float32
    assert {each.dtype for each in made.parameters} <= {wide}, f"{what}: projections are not {wide}"
    for module, (i, _) in zip(made.projections, layers, strict=bool(made.projections)):
        rows = states[0][i].to(wide)
        assert any(True for _ in module.parameters()) or torch.equal(module(rows), rows), f"{what}: states are changed"


@given(width=st.integers(1, 4), distance=st.sampled_from(["cosine", "l2"]), seed=st.integers(0, 99))
def falsify_a_step_leaves_its_states_as_they_are(subject: Any, width: int, distance: str, seed: int) -> None:
    student, teacher = _states([width] * 2, seed), _states([width] * 2, seed + 1)
    before = [each.clone() for each in (*student, *teacher)]
    matching = subject.FeatureMatching(distance=distance)
    total, gradients = matching.differentiate(student, teacher, torch.ones(B, T, dtype=torch.bool), 1.0)
    flags = [each.requires_grad for each in (*student, *teacher, total)]
    assert flags == [False] * 5, f"states, and then the sum, require a gradient: {flags}"
    assert all(map(torch.equal, before, (*student, *teacher))), "a step changes hidden states"
    given_to = [each is not None for each in gradients]
    assert given_to == [False, True], f"layers with a gradient: {given_to}; expected the last alone"


@given(width=st.integers(1, 4), distance=st.sampled_from(["cosine", "l2"]), seed=st.integers(0, 99))
def falsify_a_teacher_may_be_on_another_device(subject: Any, width: int, distance: str, seed: int) -> None:
    matching, scored = subject.FeatureMatching(distance=distance), torch.ones(B, T, dtype=torch.bool)
    expected, _ = matching.differentiate(_states([width], seed), _states([width], seed + 1), scored, 1.0)
    with fake_cuda():
        student = _states([width], seed, device="cuda")
        seen, _ = matching.differentiate(student, _states([width], seed + 1), scored.to("cuda"), 1.0)
        assert float(seen) == float(expected), f"the sum is {float(seen)}; on one device it is {float(expected)}"
