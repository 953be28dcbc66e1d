"""Wrong versions of public functions: the faults that the contract `observer-end` declares."""

from __future__ import annotations
