"""The fixture `run`: one execution of a reference run is shared by its predicates."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pytest_plugin.subprocesses import run_pytest

Project = Callable[[str], Path]


def test_falsifiers_run_with_subject_and_device(project: Project) -> None:
    pytest.importorskip("torch", reason="the CUDA cells of the project ask torch for a device")
    folder = project("small")
    done = run_pytest("falsifiers/")
    assert done.returncode == 0, done.stdout
    assert "5 passed, 2 skipped" in done.stdout
    assert "no cuda device is visible to torch" in done.stdout
    assert (folder / "falsifiers/executions.log").read_text() == "5x7 on cpu\n"
