"""Limits that settings and arithmetic share."""

from __future__ import annotations

__all__ = ["IGNORE_INDEX", "TEMPERATURES"]

IGNORE_INDEX = -100
TEMPERATURES = (1e-4, 1e4)  # beyond, tau^2 or 1/tau leaves what float32 can multiply without losing everything
