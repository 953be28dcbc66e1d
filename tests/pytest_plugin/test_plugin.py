"""The pytest plugin, by real pytest runs: in a project with contracts, and in one without any."""

from pathlib import Path

import pytest

from tests.support.processes import run_pytest
from tests.support.projects import Project, write


def test_a_mutant_is_planted(project: Project) -> None:
    project("small")
    done = run_pytest("falsifiers/", "-k", "limit", "--pv-mutant", "limit-ignored")
    assert done.returncode == 1
    assert "not the smaller of the two" in done.stdout
    assert "1 failed" in done.stdout
    unknown = run_pytest("falsifiers/", "--pv-mutant", "nothing")
    assert unknown.returncode == 4
    assert "unknown mutant 'nothing'; known: counting/epoch-lost, counting/from-zero" in unknown.stderr


def test_python_that_removes_assertions_is_refused_in_a_project_with_contracts(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("small")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    done = run_pytest("falsifiers/")
    assert done.returncode == 1 and "passed" not in done.stdout
    assert "Python removes every `assert` (-O, or PYTHONOPTIMIZE=1)" in done.stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "test_plain.py").write_text("def test_nothing():\n    pass\n")
    monkeypatch.chdir(elsewhere)
    assert run_pytest().returncode == 0


def test_other_tests_keep_their_settings(project: Project) -> None:
    folder = project("small")
    (folder / "test_ordinary.py").write_text(
        "from hypothesis import given, settings, strategies as st\n"
        "def test_profile():\n"
        "    assert settings.default.max_examples == settings.get_profile('default').max_examples\n"
        "    assert settings.default.database == settings.get_profile(settings.get_current_profile_name()).database\n"
        "    assert settings.get_current_profile_name() != 'pv'\n"
    )
    done = run_pytest("falsifiers/", "test_ordinary.py", "-k", "limit or profile")
    assert "2 passed" in done.stdout, done.stdout


def test_a_project_without_contracts_is_left_alone(empty: Path) -> None:
    test = "import sys\ndef test_it():\n    assert 'pv.contract.load' not in sys.modules\n"
    theirs = {"falsify_theirs.py": "raise RuntimeError('imported')\n", "test_it.py": test}
    write(empty, {"pyproject.toml": "[project]\nname = 'other'\n", **theirs})
    done = run_pytest()
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert run_pytest("--pv-mutant", "any").returncode == 4


def test_refused_contract_fails_and_other_tests_run(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/1\n")
    (folder / "test_ordinary.py").write_text("def test_ordinary():\n    pass\n")
    done = run_pytest("contracts/broken.yaml", "test_ordinary.py")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "missing key 'metadata'" in done.stdout


def test_a_falsifier_that_no_contract_binds_is_skipped_with_the_reason(project: Project) -> None:
    folder = project("small")
    contract = folder / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("version: 1.0.0", "version: 1"))
    done = run_pytest("falsifiers/", "-k", "limit")
    assert "1 skipped" in done.stdout
    assert "no contract binds falsify_limit; contracts/counting.yaml:2:" in done.stdout


def test_falsifiers_run_with_subject_and_device(project: Project) -> None:
    pytest.importorskip("torch", reason="the CUDA cells of the project ask torch for a device")
    folder = project("small")
    done = run_pytest("falsifiers/")
    assert done.returncode == 0, done.stdout
    assert "5 passed, 2 skipped" in done.stdout
    assert "no cuda device is visible to torch" in done.stdout
    assert (folder / "falsifiers/.executions.log").read_text() == "5x7 on cpu\n"


def test_predicates_are_counted_out_and_fail_with_their_point(project: Project) -> None:
    project("proofs")
    done = run_pytest("falsifiers/")
    assert "4 passed, 1 skipped" in done.stdout, done.stdout
    assert "undecided: held at 10,000 of 1,000,000,000,000,000,000,000 points; `pv validate --only H-B" in done.stdout
    broken = run_pytest("falsifiers/", "-k", "shares", "--pv-mutant", "rounded-up")
    assert broken.returncode == 1
    assert "H-SHARE at {'total': 1, 'parts': 2}" in broken.stdout


TEST = """
import pv
import torch
from trainers import Dropped, Raising, Reserved, Unclipped

torch.set_num_threads(2)

class OneThread(Reserved):  # a fork of a process that has used several would wait for them
    def run(self, job):
        assert torch.get_num_threads() == 1
        return super().run(job)

@pv.suite("training-loop", trainer=Unclipped)
def test_unclipped(claim):
    claim()

@pv.suite("training-loop", trainer=OneThread)
def test_reserved(claim):
    claim()

@pv.suite("training-loop", trainer=Dropped())
def test_dropped(claim):
    claim()

@pv.suite("training-loop", trainer=Raising)
def test_raising(claim):
    claim()
"""


def test_each_claim_is_a_test(project: Project) -> None:
    folder = project("trainers")
    (folder / "test_trainers.py").write_text(TEST)
    chosen = "TL-CLIP-001 and not dropped or TL-DATA-002 and not unclipped"
    ended = run_pytest("test_trainers.py", "-rfs", "-k", chosen)
    assert "FAILED test_trainers.py::test_unclipped[TL-CLIP-001] - AssertionError" in ended.stdout
    assert "not claimed: it never clips (README, section Clipping)" in ended.stdout
    assert "FAILED test_trainers.py::test_dropped[TL-DATA-002]" in ended.stdout
    assert "vacuous: its premise TL-DATA-001 does not hold" in ended.stdout
    assert ended.stdout.count("Failed: undecided: the loop cannot run the simplest job (") >= 2
    assert "in batches of 2): RuntimeError: Expected" in ended.stdout and "at trainers.py:" in ended.stdout
    assert "4 failed, 1 passed, 1 skipped" in ended.stdout
