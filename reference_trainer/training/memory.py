"""Memory that a process holds."""

from __future__ import annotations

import os
from pathlib import Path

import torch

__all__ = ["memory_bytes"]

_STATM = Path("/proc/self/statm")


def memory_bytes(device: torch.device) -> int | None:
    """Return the bytes that PyTorch has allocated on a GPU, or that the process has resident; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
