"""Claims that were not collected are named, with the reason."""

from pathlib import Path

from tests.pytest_plugin.subprocesses import run_pytest
from tests.pytest_plugin.test_claims import tiny


def test_claims_outside_the_given_folder_are_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny(tmp_path)
    (tmp_path / "falsifiers").mkdir()
    (tmp_path / "falsify_tiny.py").rename(tmp_path / "falsifiers/falsify_tiny.py")
    contract = tmp_path / "contracts/tiny.yaml"
    contract.write_text(contract.read_text().replace('"falsify_tiny', '"falsifiers/falsify_tiny'))
    done = run_pytest("falsifiers")
    assert done.returncode == 0, done.stdout
    assert (
        "pv: 2 of 3 claims were not collected\n  T-EQUATION, T-OTHER: run `pytest contracts/tiny.yaml`" in done.stdout
    )
    one = run_pytest("falsifiers/falsify_tiny.py")
    assert "were not collected" not in one.stdout
    other = run_pytest("contracts", "--collect-only", "-q")
    assert "  T-NAMED: run `pytest falsifiers/falsify_tiny.py`" in other.stdout


def test_falsifiers_without_a_contract_say_what_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "falsify_theirs.py").write_text("raise RuntimeError('imported')\n")
    done = run_pytest()
    assert done.returncode == 5
    assert "pv: falsify_theirs.py not collected: no contract was found" in done.stdout
    assert f"expected a `schema: pv/1` file below {tmp_path}/contracts, or a [tool.pv] table" in done.stdout
