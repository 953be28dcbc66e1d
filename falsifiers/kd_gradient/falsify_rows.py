"""Attacks on the numbers of each row of a walk, and on the passes that it makes over the logits.

The subject has `walk`, `weighted_sum`, `rows_per_block` and `Weights`, as `reference_trainer.distillation.rows` does.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.comparison import ANYWHERE
from falsifiers.support.strategies import KdCase, kd_cases

METRICS = ("kl_at_1", "kl", "teacher_cross_entropy", "teacher_entropy", "agreement")
_BANNED = torch.tensor([[[-math.inf, 0.0]]], dtype=torch.float64)
INFINITE = KdCase(_BANNED, _BANNED, torch.zeros(1, 1, dtype=torch.int64), ce_weight=0.0)
"""A term of weight 0 that is infinite."""
BETA = 0.3


def _walk(subject: Any, case: KdCase, device: str = "cpu", divergence: str = "forward_kl", **options: Any) -> Any:
    weights = subject.Weights(**case.settings, divergence=divergence, beta=BETA)
    rows = subject.walk(*case.tensors(device), weights, ignore_index=case.ignore_index, **options)
    return rows, weights


def _expected(case: KdCase, student: list[float], teacher: list[float], label: int, name: str) -> dict[str, float]:
    log_p, tau = oracles.log_softmax(teacher), case.temperature
    first = [max(range(len(row)), key=row.__getitem__) for row in (student, teacher)]
    return {
        "cross_entropy": oracles.cross_entropy(student, label),
        "divergence": divergence_oracles.row_divergence(student, teacher, tau, name, BETA),
        "kl_at_1": oracles.forward_kl(student, teacher, 1.0),
        "kl": oracles.forward_kl(student, teacher, tau),
        "teacher_cross_entropy": oracles.cross_entropy(teacher, label),
        "teacher_entropy": -math.fsum(math.exp(x) * x for x in log_p if x > -math.inf),
        "agreement": float(first[0] == first[1]),
    }


@example(case=INFINITE, divergence="forward_kl", metrics=True, select=True)
@given(
    case=kd_cases(banned=ANYWHERE),
    divergence=st.sampled_from(sorted(divergence_oracles.DIVERGENCES)),
    metrics=st.booleans(),
    select=st.booleans(),
)
def falsify_numbers_of_rows(
    subject: Any, device: str, case: KdCase, divergence: str, metrics: bool, select: bool
) -> None:
    filled = {
        name: getattr(case, name).masked_fill(~case.scored[..., None], math.nan) for name in ("student", "teacher")
    }
    rows, weights = _walk(subject, case.but(**filled), device, divergence, metrics=metrics, select=select)
    expected = torch.zeros(7, *case.labels.shape, dtype=torch.float64)
    allowed = 0.0
    for (b, t), student, teacher, label in case.rows():
        of_row = _expected(case, student, teacher, label, divergence)
        expected[:, b, t] = torch.tensor(list(of_row.values()), dtype=torch.float64)
        unit = oracles.UNIT_ROUNDOFF[torch.float64]
        for tau in (1.0, case.temperature):
            allowed = max(allowed, divergence_oracles.allowed_divergence(student, teacher, tau, unit))
    for term, weight in enumerate((case.ce_weight, case.kd_weight)):
        if not (weight or metrics):
            expected[term] = 0.0
    _assert_numbers(rows, expected.flatten(1), 2 + 5 * metrics, allowed)
    absent = [name for name in METRICS if getattr(rows, f"{name}_P").numel()]
    assert metrics or not absent, f"metrics that were not asked for have numbers: {absent}"
    assert rows.gradient_BTV.numel() == 0, f"a gradient of {list(rows.gradient_BTV.shape)} without a scale"
    _assert_weighted(subject, rows, weights, case)


def _assert_numbers(rows: Any, expected: Tensor, count: int, allowed: float) -> None:
    for name, wanted in list(zip(("cross_entropy", "divergence", *METRICS), expected, strict=True))[:count]:
        seen = getattr(rows, f"{name}_P")
        assert (seen.dtype, seen.shape) == (torch.float64, wanted.shape), f"{name} is {seen.dtype} {list(seen.shape)}"
        oracles.assert_all_close(f"{name} of row ", seen.cpu().tolist(), wanted.tolist(), allowed, "the oracle's")


def _assert_weighted(subject: Any, rows: Any, weights: Any, case: KdCase) -> None:
    """Assert that the weighted sum has no term of weight 0, even if it is infinite."""
    terms = (case.ce_weight, rows.cross_entropy_P), (case.kd_weight * case.temperature**2, rows.divergence_P)
    expected = math.fsum(weight * nats for weight, nats_P in terms if weight for nats in nats_P.tolist())
    seen = float(subject.weighted_sum(rows, weights))
    oracles.assert_close("the weighted sum", seen, expected, 1e-12 * abs(expected), "terms of positive weight")


@given(case=kd_cases(banned=ANYWHERE), scale=st.sampled_from([1.0, 0.25, 3.0]), as_tensor=st.booleans())
def falsify_gradient_has_the_scale(subject: Any, device: str, case: KdCase, scale: float, as_tensor: bool) -> None:
    of = torch.tensor(scale, dtype=torch.float64, device=device) if as_tensor else scale
    for select in (True, False):
        rows, _ = _walk(subject, case, device, scale=of, select=select)
        difference = (rows.gradient_BTV.cpu() - scale * case.oracle_gradient()).abs().max()
        allowed = scale * case.allowed_gradient() + 1e-300
        assert float(difference) <= allowed, f"at scale {scale}, select={select}, the gradient differs by {difference}"


class Passes(TorchDispatchMode):
    """Counts elements of tensors of a row's length that are read or written, and operations on them."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.elements, self.operations = vocabulary, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs or {}, result))
        long = {
            id(x): x.numel() for x in leaves if isinstance(x, Tensor) and x.dim() and x.shape[-1] == self.vocabulary
        }
        moved = bool(long) and not func.is_view and "empty" not in func.name()
        self.elements += moved * sum(long.values())
        self.operations += moved
        return result


def falsify_passes_over_the_logits(subject: Any) -> None:
    """A step moves each scored row a known number of times, and unscored rows only to zero them.

    64 rows of 1,024 tokens are one block, of 16,384 two.
    """
    rows = 64
    draw = torch.Generator().manual_seed(0)
    for what, V, every, options, most in (
        ("loss and gradient", 1024, 1, {"scale": 1.0}, (37, 28)),
        ("loss and gradient, every second row", 1024, 2, {"scale": 1.0}, (46, 31)),
        ("loss alone", 1024, 1, {}, (32, 25)),
        ("loss and gradient with metrics", 1024, 1, {"scale": 1.0, "metrics": True}, (65, 48)),
        ("loss and gradient in two blocks", 16384, 1, {"scale": 1.0}, (37, 56)),
        ("loss and gradient in two blocks, without selection", 16384, 1, {"scale": 1.0, "select": False}, (37, 56)),
    ):
        student, teacher = torch.randn(2, 1, rows, V, generator=draw)
        labels = torch.randint(V, (1, rows), generator=draw)
        case = KdCase(student, teacher, labels.where(torch.arange(rows) % every == 0, -100), 2.0, 0.3, 0.7)
        with Passes(V) as seen:
            _walk(subject, case, **options)
        passes = seen.elements / (V * rows / every)
        assert passes <= most[0] and seen.operations <= most[1], (
            f"{what}: {passes:g} passes over the scored rows by {seen.operations} operations; expected at most "
            f"{most[0]} by {most[1]}"
        )


@given(vocabulary=st.integers(1, 2**21), dtype=st.sampled_from([torch.float32, torch.float64]))
def falsify_blocks_stay_in_the_cache(subject: Any, vocabulary: int, dtype: torch.dtype) -> None:
    for device, size in (("cpu", 2 << 20), ("meta", 64 << 20)):
        seen, row = subject.rows_per_block(vocabulary, dtype, torch.device(device)), vocabulary * dtype.itemsize
        fits = seen == 1 or seen * row <= size
        assert seen >= 1 and fits and (seen + 1) * row > size, f"{seen} rows of {row} bytes in a block on {device}"
