"""Attacks on the order of a window's work, and on the divisor that other ranks take part in.

`Recorder` stands for the ranks: it records calls, and other ranks have scored tokens too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.windows import V, WindowCase, assert_gradients, gradients_of, learners, window_cases
from reference_trainer.distillation.providers import FixtureTeacher


class Recorder:
    """Ranks of which this one is the second; the first has `others`, tokens and sequences, and sets a flag."""

    rank, world_size = 1, 2

    def __init__(self, others: tuple[int, int], factor: float) -> None:
        self.others, self.gradient_factor = others, factor
        self.log: list[str] = []
        self.given: list[Tensor] = []

    def sum_counts(self, counts: Tensor) -> Tensor:
        self.log.append("counts")
        self.given.append(counts.clone())
        return counts + torch.tensor([*self.others, 1, 0], device=counts.device)[: len(counts)]

    def sum_metrics(self, sums: Tensor) -> Tensor:
        self.log.append("metrics")
        return sums

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self.log.append("last begins" if last else "begins")
        yield
        self.log.append("ends")


class LoggedStudent:
    """A student that adds its forwards and backwards to the log."""

    def __init__(self, inner: Any, log: list[str]) -> None:
        self.inner, self.log, self.vocab_size = inner, log, inner.vocab_size

    def forward(self, batch: Any) -> Any:
        self.log.append("forward")
        return LoggedPass(self.inner.forward(batch), self.log)


class LoggedPass:
    def __init__(self, inner: Any, log: list[str]) -> None:
        self.inner, self.log, self.logits = inner, log, inner.logits

    def backward(self, gradient: Tensor) -> None:
        self.log.append("backward")
        self.inner.backward(gradient)


OTHERS = st.tuples(st.integers(0, 9), st.integers(0, 9))


@given(
    case=window_cases(),
    others=OTHERS,
    factor=st.sampled_from([1.0, 2.0, 3.0]),
    metrics=st.booleans(),
    stop=st.booleans(),
    left_out=st.booleans(),
)
def falsify_counts_come_before_the_first_forward(
    subject: Any,
    device: str,
    case: WindowCase,
    others: tuple[int, int],
    factor: float,
    metrics: bool,
    stop: bool,
    left_out: bool,
) -> None:
    recorder = Recorder(others, factor)
    teacher, student, _ = learners(case, device)
    batches = case.batches(device=device)
    settings = {"parallel": recorder, "metrics": metrics, "before": lambda m: recorder.log.append(f"before {m}")}
    flags: list[list[int]] = []
    settings["flags"] = (stop, False)
    settings["leaves_out"] = lambda summed: bool(flags.append(summed.tolist())) or left_out
    window = subject.kd_window(teacher, LoggedStudent(student, recorder.log), batches, case.weights, **settings)
    work = ["forward", "backward", "ends"]
    begins = ["begins"] * (len(batches) - 1) + ["last begins"]
    calls = [call for m, begin in enumerate(begins) for call in (f"before {m}", begin, *work)]
    expected = ["counts", *([] if left_out else calls)]
    assert recorder.log == expected, f"the calls of a window are {recorder.log}; expected {expected}"
    counts, own = recorder.given[0], [case.count(), case.sequences(), int(stop), 0]
    assert counts.dtype is torch.int64 and counts.tolist() == own, (
        f"to reduce are {counts.tolist()}, {counts.dtype}; expected {own}, int64: scored tokens, sequences, flags"
    )
    assert flags == [[1 + stop, 0]], f"the flags are {flags}; expected {[1 + stop, 0]}, how many ranks set each"
    assert (window is None) == left_out, f"left out: {left_out}; the sums are {window}"
    if left_out:
        return
    seen = int(window.count), int(window.total), int(window.sequences)
    wanted = own[0], own[0] + others[0], own[1] + others[1]
    assert seen == wanted, f"count, total and sequences are {seen}; expected {wanted}: own tokens, then those of all"


@given(case=window_cases())
def falsify_different_vocabularies_are_refused_first(subject: Any, case: WindowCase) -> None:
    recorder = Recorder((0, 0), 1.0)
    _, student, _ = learners(case)
    teacher = FixtureTeacher(case.teacher[:, :-1])
    with pytest.raises(ValueError, match=f"student {V}, teacher {V - 1};"):
        logged = LoggedStudent(student, recorder.log)
        subject.kd_window(teacher, logged, case.batches(), case.weights, parallel=recorder)
    assert recorder.log == [], f"before the refusal the window called {recorder.log}; expected nothing"


@given(case=window_cases(), others=OTHERS, factor=st.sampled_from([1.0, 2.0, 3.0]))
def falsify_divisor_counts_every_rank(
    subject: Any, device: str, case: WindowCase, others: tuple[int, int], factor: float
) -> None:
    teacher, student, module = learners(case, device)
    parallel = Recorder(others, factor)
    subject.kd_window(teacher, student, case.batches(device=device), case.weights, parallel=parallel)
    own, total = max(case.count(), 1), max(case.count() + others[0], 1)
    share = factor * own / total
    expected, allowed = ({k: share * v for k, v in each.items()} for each in (case.gradient(), case.allowed()))
    what = f"{case.count()} of {case.count() + others[0]} scored tokens are of this rank, gradient_factor {factor:g}"
    assert_gradients(what, gradients_of(module), expected, allowed)
