"""Attacks on the gradient and the sums of a window, which must equal one batch with all sequences of all ranks."""

from contextlib import nullcontext
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.steps import (
    NOTHING_SCORED,
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
    label = f"{[len(numbers) for numbers in case.split[0]]} sequences in the micro-batches"
    assert_gradients(label, gradients_of(module), case.gradient(), case.allowed(dtype))


@given(case=window_cases(), metrics=st.booleans())
def falsify_sums_of_a_window(subject: Any, device: str, case: WindowCase, metrics: bool) -> None:
    teacher, student, _ = learners(case, device)
    settings = {"metrics": True} if metrics else {}  # no metrics is the default
    window = subject.kd_window(teacher, student, case.batches(device=device), case.weights, **settings)
    counts = {"count": window.count, "total": window.total, "sequences": window.sequences}
    seen = {name: (int(count), count.dtype) for name, count in counts.items()}
    expected = {"count": case.count(), "total": case.count(), "sequences": case.sequences()}
    wanted = {name: (value, torch.int64) for name, value in expected.items()}
    assert seen == wanted, f"counts are {seen}; expected {expected}, int64"
    weight = {"loss": 1.0, "hard_loss": case.ce_weight, "soft_loss": case.kd_weight, "kl_at_T": 0.0}
    nats = {name: nat for name, nat in case.nats().items() if metrics or weight[name]}
    lacking, excess = nats.keys() - window.sums.keys(), window.sums.keys() - nats.keys()
    assert not lacking and (metrics or not excess), f"sums are {sorted(window.sums)}; expected {sorted(nats)}"
    for name, nat in nats.items():
        assert window.sums[name].dtype is torch.float64, f"{name} is {window.sums[name].dtype}; expected float64"
        formula = "the sum over all micro-batches"
        oracles.assert_close(f"{name} in nats", float(window.sums[name]), nat, case.allowed_nats(), formula)


@given(case=window_cases(), fillers=st.integers(1, 3))
def falsify_nothing_scored(subject: Any, device: str, case: WindowCase, fillers: int) -> None:
    case = case.but(samples=(NOTHING_SCORED,) * fillers, split=(tuple((n,) for n in range(fillers)),))
    teacher, student, module = learners(case, device)
    window = subject.kd_window(teacher, student, case.batches(device=device), case.weights)
    sums = {name: float(sum) for name, sum in window.sums.items()}
    assert (int(window.total), set(sums.values())) == (0, {0.0}), f"sums {sums} of {int(window.total)} tokens"
    assert_gradients("nothing is scored", gradients_of(module), case.gradient(), case.allowed())


class Ranks:
    """Two ranks. This one is the second; `first` are the tokens and sequences of the first."""

    rank, world_size = 1, 2

    def __init__(self, first: tuple[int, int], factor: float) -> None:
        self.first, self.gradient_factor = first, factor

    def sum_counts(self, counts: Tensor) -> Tensor:
        return counts + torch.tensor([*self.first, 1, 0], device=counts.device)[: len(counts)]

    def window(self, *, teacher: bool = True) -> Any:
        return nullcontext()

    def micro_batch(self, *, last: bool) -> Any:
        return nullcontext()


@given(
    case=window_cases(), first=st.tuples(st.integers(0, 9), st.integers(0, 9)), factor=st.sampled_from([1.0, 2.0, 3.0])
)
def falsify_divisor_counts_every_rank(
    subject: Any, device: str, case: WindowCase, first: tuple[int, int], factor: float
) -> None:
    teacher, student, module = learners(case, device)
    parallel = Ranks(first, factor)
    subject.kd_window(teacher, student, case.batches(device=device), case.weights, parallel=parallel)
    share = factor * max(case.count(), 1) / max(case.count() + first[0], 1)
    expected, allowed = ({k: share * v for k, v in values.items()} for values in (case.gradient(), case.allowed()))
    label = f"{case.count()} of {case.count() + first[0]} scored tokens are of this rank, gradient_factor {factor:g}"
    assert_gradients(label, gradients_of(module), expected, allowed)
