"""The commands for authors, as they are run."""

from pathlib import Path

import pytest

from pv.linting import CODES
from tests.cli.calls import run


def test_new_prints_what_it_wrote_and_the_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("new", "rate")
    assert done.stdout.splitlines() == [
        "wrote pyproject.toml",
        "wrote contracts/pv-1.schema.json",
        "wrote rate.py",
        "wrote contracts/rate.yaml",
        "wrote falsifiers/rate/falsify_rate.py",
        "next: pv validate rate",
    ]
    again = run("new", "rate")
    assert (again.returncode, again.stdout) == (3, "")
    assert again.stderr.startswith("pv: duplicate contract 'rate'")


def test_explain_prints_a_code_with_a_wrong_and_a_right_example() -> None:
    done = run("explain", "PV005")
    assert done.returncode == 0
    assert done.stdout.startswith(f"PV005  {CODES['PV005']}\n")
    assert "\nWrong:\n    subject: tiny\n    subject: tiny\n" in done.stdout
    assert done.stdout.endswith("\nRight:\n    subject: tiny\n")
    assert run("explain", "pv005").stdout == done.stdout
