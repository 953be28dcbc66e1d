"""The commands for authors, as they are run."""

from pathlib import Path

import pytest

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
