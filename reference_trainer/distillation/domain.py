"""Limits shared by settings and arithmetic; imports no torch."""

from __future__ import annotations

__all__ = ["IGNORE_INDEX", "TEMPERATURES"]

IGNORE_INDEX = -100
TEMPERATURES = (1e-4, 1e4)  # beyond these, tau^2 or 1/tau over- or underflows in float32
