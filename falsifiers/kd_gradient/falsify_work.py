"""Attacks on the work of a distillation loss: rows through a softmax are counted, nothing is timed."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.support.strategies import KdCase, kd_cases


class SoftmaxRows(TorchDispatchMode):
    """Counts the rows that pass through a softmax or a log-softmax, and records on how many threads."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.threads = 0, set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "softmax" in func.name() and "backward" not in func.name():
            self.rows += args[0].numel() // max(args[0].shape[-1], 1)
            self.threads.add(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


@given(case=kd_cases())
def falsify_rows_are_normalised_once(subject: Any, device: str, case: KdCase) -> None:
    distributions = (case.ce_weight > 0) + 2 * (case.kd_weight > 0)  # the student at 1; both models at τ
    expected = distributions * int(case.scored.sum())
    for what, call in (("loss and derivative", case.autograd), ("closed form", case.gradient)):
        with SoftmaxRows() as seen:
            call(subject, device)
        assert seen.rows == expected, (
            f"{what}: {seen.rows} rows pass through a softmax; expected {expected}, {distributions} for each of the "
            f"{int(case.scored.sum())} scored rows of {case.scored.numel()}"
        )


@given(case=kd_cases())
def falsify_rows_are_read_on_one_thread(subject: Any, case: KdCase) -> None:
    before = torch.get_num_threads()
    try:
        for what, call in (("loss and derivative", case.autograd), ("closed form", case.gradient)):
            torch.set_num_threads(3)
            with SoftmaxRows() as seen:
                call(subject, "cpu")
            after = torch.get_num_threads()
            assert seen.threads <= {1}, f"{what}: rows are normalised on {seen.threads} threads; expected 1"
            assert after == 3, f"{what}: a caller with 3 threads has {after} afterwards"
    finally:
        torch.set_num_threads(before)
