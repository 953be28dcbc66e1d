"""Attacks on the work of a distillation loss: rows through a softmax are counted, nothing is timed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.support.strategies import KdCase, kd_cases


class SoftmaxRows(TorchDispatchMode):
    """Counts the rows that pass through a softmax or a log-softmax."""

    rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "softmax" in func.name() and "backward" not in func.name():
            self.rows += args[0].numel() // max(args[0].shape[-1], 1)
        return func(*args, **(kwargs or {}))


@given(case=kd_cases())
def falsify_rows_are_normalised_once(subject: Any, device: str, case: KdCase) -> None:
    """Loss and derivative need one softmax a distribution and scored row; so does the closed form."""
    distributions = (case.ce_weight > 0) + 2 * (case.kd_weight > 0)  # the student at 1; both models at τ
    expected = distributions * int(case.scored.sum())
    for what, call in (("loss and derivative", case.autograd), ("closed form", case.gradient)):
        with SoftmaxRows() as seen:
            call(subject, device)
        assert seen.rows == expected, (
            f"{what}: {seen.rows} rows pass through a softmax; expected {expected}, {distributions} for each of the "
            f"{int(case.scored.sum())} scored rows of {case.scored.numel()}"
        )
