"""The array library: PyTorch where it is installed."""

import subprocess
from pathlib import Path

import torch

from pv.equations import arrays

SHOWN = "from pv.equations.arrays import Tensor, torch; print(torch.__name__, Tensor.__module__)"


def test_pytorch_is_used_where_it_is_installed() -> None:
    assert (arrays.torch, arrays.Tensor) == (torch, torch.Tensor)


def test_scalars_are_used_where_it_is_not(without_torch: Path) -> None:
    done = subprocess.run([without_torch, "-c", SHOWN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pv.equations.scalars"] * 2
