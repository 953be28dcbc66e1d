"""Tensors on a device that this machine lacks: operations that mix devices raise, and nothing is computed.

`FakeTensorMode` follows shape, dtype and device of each tensor. The fake device is `meta`: a torch without CUDA cannot
copy, broadcast or differentiate fake tensors on `cuda` ("PyTorch is not linked with support for cuda devices"), and the
rule for mixed devices is the same. Code that asks for `device.type == "cuda"` is not reached.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

DEVICE = "meta"


class FakeDevice(FakeTensorMode):
    """A mode in which tensors on `DEVICE` are fake, and so are new ones on the CPU.

    Values do not exist, so each question for one is answered: a boolean is False, a number is 1. Checks thus find
    nothing wrong, and the code after them is reached; the code that reports a wrong value is not. The number of rows
    that a mask selects is unknown. Tensors that exist already, such as a text, can be used.
    """

    def __init__(self) -> None:
        super().__init__(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer the question for a value, or let the mode follow the operation."""
        if func is not torch.ops.aten._local_scalar_dense.default:
            return super().dispatch(func, types, args, kwargs or {})
        dtype = args[0].dtype
        return False if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1


def complaint(what: str, call: Any) -> str | None:
    """Return None if the call raises nothing, else the exception: of mixed devices, or of the subject."""
    try:
        call()
    except Exception as error:  # torch raises RuntimeError, TypeError or its own, by the operation
        return f"{what}: {type(error).__name__}: {error}"
    return None
