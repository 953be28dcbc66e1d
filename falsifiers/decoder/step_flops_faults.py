"""Faulty counts, for mutants that replace `step_flops`. `original` is the replaced function."""

from __future__ import annotations
