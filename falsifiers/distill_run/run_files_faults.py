"""Faulty files and manifests of runs, for mutants that replace a public function or method."""

from __future__ import annotations
