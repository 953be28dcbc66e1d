"""Predicates of proofs run under pytest at every point of a small box."""

from collections.abc import Callable
from pathlib import Path

from tests.pytest_plugin.subprocesses import run_pytest

Project = Callable[[str], Path]


def test_predicates_are_counted_out_and_fail_with_their_point(project: Project) -> None:
    project("proofs")
    done = run_pytest("falsifiers/")
    assert "4 passed, 1 skipped" in done.stdout, done.stdout
    assert "undecided: held at 10,000 of 1,000,000,000,000,000,000,000 points; `pv validate --only H-B" in done.stdout
    broken = run_pytest("falsifiers/", "-k", "shares", "--pv-mutant", "rounded-up")
    assert broken.returncode == 1
    assert "H-SHARE at {'total': 1, 'parts': 2}" in broken.stdout


def test_search_of_a_part_of_a_box_is_no_pass(project: Project) -> None:
    folder = project("proofs")
    contract = folder / "contracts/proofs.yaml"
    contract.write_text(contract.read_text().replace("total: 0..50", "total: 0..1000000000"))
    done = run_pytest("falsifiers/", "-k", "shares")
    assert "1 skipped" in done.stdout and "passed" not in done.stdout
    assert "points; `pv validate --only H-SHARE` searches all" in done.stdout


def test_box_without_a_point_fails(project: Project) -> None:
    folder = project("proofs")
    contract = folder / "contracts/proofs.yaml"
    contract.write_text(contract.read_text().replace("requires: parts > 0", "requires: parts > 9"))
    done = run_pytest("falsifiers/", "-k", "shares")
    assert done.returncode == 1
    assert "H-SHARE is vacuous: the box has no point" in done.stdout
