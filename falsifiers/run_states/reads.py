"""Operations that wait for a device, because they need a number, a shape or a copy from it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from reference_trainer.distillation.checks import raise_fault
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher
from reference_trainer.distillation.rows import walk

WAITING = {
    "item",
    "tolist",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__contains__",
    "cpu",
    "numpy",
    "nonzero",
    "argwhere",
    "masked_select",
    "unique",
    "equal",
    "allclose",
}
"""Functions and methods of tensors whose result the host waits for."""

CHECKS = {each.__module__ for each in (walk, raise_fault, FixtureStudent, FixtureTeacher)}
"""Modules that check logits, labels and the tokens of tables at once, by reading them: they are not counted."""


class Reads(TorchFunctionMode):
    """Call `note` with the name of each operation that waits, except in `CHECKS`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        waits = name in WAITING or (name == "to" and _to_the_host(args)) or (name == "__getitem__" and _masks(args))
        if waits and not _checking():
            self._note(name)
        return func(*args, **(kwargs or {}))


def _to_the_host(args: Any) -> bool:
    """Return whether the call copies a tensor of another device to the CPU."""
    named = [torch.device(x) for x in args[1:] if isinstance(x, str | torch.device)]
    named += [x.device for x in args[1:] if isinstance(x, Tensor)]
    return args[0].device.type != "cpu" and any(each.type == "cpu" for each in named)


def _masks(args: Any) -> bool:
    """Return whether a mask selects elements, whose number the host waits for."""
    return any(isinstance(x, Tensor) and x.dtype is torch.bool for x in tree_leaves(args[1]))


def _checking() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in CHECKS:
            return True
        frame = frame.f_back
    return False
