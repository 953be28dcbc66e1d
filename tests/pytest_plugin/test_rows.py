"""Rows of parameters: the subject and the device of each clause that binds a function."""

from collections.abc import Callable
from pathlib import Path

from tests.pytest_plugin.subprocesses import run_pytest

Project = Callable[[str], Path]


def test_subject_that_was_imported_from_elsewhere_is_skipped(project: Project) -> None:
    folder = project("small")
    (folder / "installed").mkdir()
    (folder / "installed/counting.py").write_text((folder / "counting.py").read_text())
    done = run_pytest("falsifiers", "-k", "limit", "-o", "pythonpath=installed")
    assert "1 skipped" in done.stdout, done.stdout
    assert "installed/counting.py, not from" in done.stdout


def test_a_falsifier_that_no_contract_binds_is_skipped_with_the_reason(project: Project) -> None:
    folder = project("small")
    contract = folder / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("version: 1.0.0", "version: 1"))
    done = run_pytest("falsifiers/", "-k", "limit")
    assert "1 skipped" in done.stdout
    assert "no contract binds falsify_limit; contracts/counting.yaml:2:" in done.stdout
