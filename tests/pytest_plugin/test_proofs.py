"""Predicates of proofs run under pytest at every point of a small box."""

from collections.abc import Callable
from pathlib import Path

from tests.pytest_plugin.subprocesses import run_pytest

Project = Callable[[str], Path]


def test_predicates_are_counted_out_and_fail_with_their_point(project: Project) -> None:
    project("proofs")
    done = run_pytest("falsifiers/")
    assert "5 passed" in done.stdout, done.stdout
    broken = run_pytest("falsifiers/", "-k", "shares", "--pv-mutant", "rounded-up")
    assert broken.returncode == 1
    assert "H-SHARE at {'total': 1, 'parts': 2}" in broken.stdout
