"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations
