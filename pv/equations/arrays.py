"""The array library of equations: PyTorch, or `scalars` where it is not installed.

`pv.equations.scalars.needs_torch` returns the part of an equation that needs PyTorch.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

# find_spec and not a caught ImportError: a broken PyTorch must be reported, not replaced.
if TYPE_CHECKING or find_spec("torch") is not None:
    import torch
    from torch import Tensor
else:
    from pv.equations import scalars as torch
    from pv.equations.scalars import Tensor

__all__ = ["Tensor", "torch"]
