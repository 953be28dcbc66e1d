"""Attacks on the isolation of a distillation step: from PyTorch's modes and from the teacher's forward."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given

from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import allowed_table, table_step
from falsifiers.support.strategies import StepCase, step_cases
from falsifiers.support.torch_modes import MODES


@given(case=step_cases(dtype=torch.float32))
def falsify_step_is_independent_of_torch_modes(subject: Any, device: str, case: StepCase) -> None:
    expected, table = table_step(subject, case, 1.0, device)
    # Bits may differ only where a device adds the gradients of one row in no fixed order.
    allowed = 0.0 if device == "cpu" else allowed_table(case, 1.0, 2.0**-24)
    for name, mode in MODES.items():
        with mode(device):
            result, moved = table_step(subject, case, 1.0, device)
        assert result == expected, f"the step's result under {name} is {result}; expected {expected}"
        assert_same_gradient(f"the student's table under {name}", moved, table, allowed, "the same without")
