"""Faulty exports, for mutants that replace a public function."""

from __future__ import annotations
