"""Contracts are collected: equations, claims whose function has another name, and mutants on request."""

from collections.abc import Callable
from pathlib import Path

import pytest

import pv
from pv.contract.load import load
from pv.engines.trial import TrialStatus
from pv.pytest_plugin.attempts import Attempts
from pv.source.project import find_project
from tests.commands.small import edit
from tests.support.processes import run_pytest
from tests.support.projects import Project


@pytest.fixture
def folder(project: Project) -> Path:
    """Return a new working directory with a project without [tool.pv]."""
    return project("undeclared")


def test_all_claims_are_collected_without_a_configuration(folder: Path) -> None:
    done = run_pytest("-v", "--pv-mutants")
    assert done.returncode == 1
    passed = [line.split("::")[-1].partition(" ")[0] for line in done.stdout.splitlines() if " PASSED" in line]
    assert passed == ["T-EQUATION-cpu", "T-NAMED[tripled]", "T-OTHER-cpu", "falsify_double[T-NAMED-cpu]"]
    assert "the mutant harmless (the sum) survived" in done.stdout
    assert "were not collected" not in done.stdout


SWAPS = """
def imports_nothing(original, n):
    import no_such_package
    return 3 * n
def skips(original, n):
    import unittest
    raise unittest.SkipTest("no device")
"""


def test_a_mutant_that_could_not_be_judged_fails_as_in_a_validation(folder: Path) -> None:
    (folder / "swaps.py").write_text(SWAPS)
    declared = 'swap: {object: "tiny:double", with: "swaps:%s"}}\n'
    swaps = f"- {{id: absent, fault: a, {declared % 'imports_nothing'}- {{id: skipped, fault: a, {declared % 'skips'}"
    contract = folder / "contracts/tiny.yaml"
    contract.write_text(contract.read_text().replace("kills: [tripled]", "kills: [tripled, absent, skipped]") + swaps)
    done = run_pytest("contracts", "--pv-mutants", "-k", "T-NAMED", "-rA")
    assert "PASSED contracts/tiny.yaml::T-NAMED[tripled]" in done.stdout
    assert "the mutant absent (a) could not be judged: ModuleNotFoundError" in done.stdout
    assert "the mutant skipped (a) could not be judged: no device" in done.stdout
    assert "2 failed, 1 passed" in done.stdout
    assert pv.validate(["contracts"], only=["T-NAMED"]).exit_code == 1


def test_failures_show_the_call_the_place_and_the_values_of_an_assert(folder: Path) -> None:
    (folder / "tiny.py").write_text("def double(n):\n    return 3 * n\n")
    done = run_pytest()
    assert "3 failed" in done.stdout
    assert "  call    double(1)\n  at      tiny.py:1 in double: def double(n):" in done.stdout
    assert "assert 9 == 6" in done.stdout
    assert "  author  if this fails: another factor\n" in done.stdout


def test_claims_outside_the_given_folder_are_named(folder: Path) -> None:
    (folder / "falsifiers").mkdir()
    (folder / "falsify_tiny.py").rename(folder / "falsifiers/falsify_tiny.py")
    edit(folder / "contracts/tiny.yaml", '"falsify_tiny', '"falsifiers/falsify_tiny')
    done = run_pytest("falsifiers")
    assert done.returncode == 0, done.stdout
    says = "pv: 2 of 3 claims were not collected\n  T-EQUATION, T-OTHER: run `pytest contracts/tiny.yaml`"
    assert says in done.stdout
    one = run_pytest("falsifiers/falsify_tiny.py")
    assert "were not collected" not in one.stdout
    other = run_pytest("contracts", "--collect-only", "-q")
    assert "  T-NAMED: run `pytest falsifiers/falsify_tiny.py`" in other.stdout


def test_falsifiers_without_a_contract_say_what_is_missing(empty: Path) -> None:
    (empty / "falsify_theirs.py").write_text("raise RuntimeError('imported')\n")
    done = run_pytest()
    assert done.returncode == 5
    assert "pv: falsify_theirs.py not collected: no contract was found" in done.stdout
    assert f"expected a `schema: pv/1` file below {empty}/contracts, or a [tool.pv] table" in done.stdout


def test_claims_and_mutants_are_tried_and_no_process_is_left(project: Project, marked: Callable[[], list[int]]) -> None:
    folder = project("small")
    (contract,) = load([folder / "contracts"]).contracts
    claims = {claim.id: claim for claim in contract.claims}
    attempts = Attempts(find_project(folder))
    for id_ in ("C-LIMIT", "C-RUN-FIRST"):
        assert attempts.trial(contract, claims[id_], "cpu", None).status is TrialStatus.HELD, id_
        for name in claims[id_].kills:
            found = attempts.trial(contract, claims[id_], "cpu", contract.mutant(name))
            assert found.status in (TrialStatus.REFUTED, TrialStatus.RAISED), (id_, name)
    attempts.close()
    assert marked() == []
    assert attempts.absent("cpu") == ""


def test_cuda_is_absent_where_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pv.pytest_plugin.attempts.find_spec", lambda name: None)
    assert Attempts(find_project(Path.cwd())).absent("cuda") == "torch is not installed"
