"""The pytest plugin, by real pytest runs: in a project with contracts, and in one without any."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pytest_plugin.subprocesses import run_pytest

Project = Callable[[str], Path]


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


def test_a_project_without_contracts_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    (tmp_path / "falsify_theirs.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert 'pv.contract.load' not in sys.modules\n"
    )
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


def test_examples_are_as_many_as_the_contract_asks_for(project: Project) -> None:
    folder = project("small")
    contract, falsifier = folder / "contracts/counting.yaml", folder / "falsifiers/falsify_counting.py"
    contract.write_text(contract.read_text().replace("kills: [limit-ignored, limit-forgotten]", "examples: 321"))
    call = "    assert subject.total(epochs, steps, limit)"
    falsifier.write_text(falsifier.read_text().replace(call, f'    print("tried")\n{call}'))
    done = run_pytest("falsifiers", "-k", "limit", "-s")
    assert done.stdout.count("tried") == 321
