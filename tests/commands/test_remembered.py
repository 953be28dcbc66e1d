"""A whole report is reused while no file of the project changes, and only if it passed."""

import json
from collections.abc import Callable

import pytest

from tests.commands.small import Project, edit, run

REMEMBERED = "nothing has changed since the validation of"
ONLY = ("validate", "--only", "C-WHOLE")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the labels of the jobs that are given to workers from now on."""
    from pv.workers.scheduler import Scheduler

    labels: list[str] = []
    submit: Callable[..., None] = Scheduler.submit
    monkeypatch.setattr(Scheduler, "submit", lambda self, job: (labels.append(job.label), submit(self, job)))
    return labels


def test_report_is_the_same_but_for_its_note(project: Project, jobs: list[str]) -> None:
    folder = project("small")
    first, second = (run(*ONLY, "-v", "--output", f"json={name}.json") for name in ("a", "b"))
    third = run(*ONLY, "-v")  # the reports above are new files
    assert (first.returncode, second.returncode, third.returncode) == (0, 0, 0)
    jobs.clear()
    last = run(*ONLY, "-v")
    assert jobs == [] and REMEMBERED in last.stdout
    lines = [line for line in first.stdout.splitlines() if " s on cpu" not in line]
    assert [line for line in last.stdout.splitlines() if line in lines] == lines
    assert json.loads((folder / "a.json").read_text())["contracts"]


def test_any_changed_file_evidence_option_or_folder_makes_another_report(project: Project) -> None:
    folder = project("small")
    run(*ONLY)
    assert REMEMBERED in run(*ONLY).stdout
    assert REMEMBERED not in run(*ONLY, "--seed", "1").stdout
    edit(folder / "counting.py", "epochs * steps", "steps * epochs")
    assert REMEMBERED not in run(*ONLY).stdout
    (folder / "evidence").mkdir(exist_ok=True)
    (folder / "evidence/other.txt").write_text("")
    assert REMEMBERED not in run(*ONLY).stdout
    assert REMEMBERED not in run(*ONLY, "--no-cache").stdout


def test_failure_is_never_kept(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "epochs * steps", "epochs + steps")
    assert (run(*ONLY).returncode, run(*ONLY).returncode) == (1, 1)
    assert REMEMBERED not in run(*ONLY).stdout
