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


def test_falsifiers_of_other_subjects_read_executions_of_their_own(project: Project) -> None:
    folder = project("small")
    text = (folder / "counting.py").read_text()
    (folder / "losing.py").write_text(text.replace("range(1, total(epochs, steps) + 1)", "range(total(epochs, steps))"))
    contract = folder / "contracts/counting.yaml"
    contract.write_text(
        contract.read_text().replace("  run: whole\n  kills", "  run: whole\n  subject: losing\n  kills")
    )
    done = run_pytest("falsifiers/", "-k", "run and cpu")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "falsify_run_starts_at_one[C-RUN-FIRST-cpu]" in done.stdout.partition("FAILURES")[2]
