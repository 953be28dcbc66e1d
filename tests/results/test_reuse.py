"""A result is recalled for the same task while no file that it depends on has changed."""

import os
import time
from pathlib import Path

import pytest

from pv.engines.trial import Counterexample, Output, Trial, TrialStatus
from pv.results.reuse import FILE, Reuse
from pv.source.project import find_project

TASK = {"kind": "property", "payload": {"examples": 10}}
FOUND = Trial(
    falsifier="F",
    device="cpu",
    status=TrialStatus.REFUTED,
    mutant="m",
    detail="1 == 2",
    counterexample=Counterexample(arguments={"x": 1}, exact=True, error="AssertionError", frames=("a.py:1",)),
    reached=frozenset({"m:f"}),
    files=frozenset({"code.py"}),
    output=Output(head="said\n"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("code.py", "data.txt"):
        (tmp_path / name).write_text("1\n")
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    time.sleep(0.01)  # a file that changed since the start of a validation is not trusted
    return tmp_path


def recalled(reuse: Reuse, task: object = TASK) -> Trial | None:
    return reuse.recalled(reuse.key(task))


def kept(folder: Path, task: object = TASK) -> Reuse:
    """Keep the result of a task in one validation, and return that of the next."""
    first = Reuse(find_project(folder))
    first.keep(first.key(task), FOUND, ["data.txt"])
    first.close()
    return Reuse(find_project(folder))


def test_result_is_recalled_whole_and_counted(folder: Path) -> None:
    again = kept(folder)
    assert recalled(again) == FOUND
    assert (again.count, again.problem) == (1, "")


@pytest.mark.parametrize("name", ["code.py", "data.txt"])
@pytest.mark.parametrize("change", ["2\n", "1\n# comment\n", None])
def test_result_is_not_recalled_once_a_file_changed_or_is_gone(folder: Path, name: str, change: str | None) -> None:
    again = kept(folder)
    if change is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(change)
    assert recalled(again) is None


def test_result_is_not_kept_if_a_file_changed_while_the_validation_ran(folder: Path) -> None:
    first = Reuse(find_project(folder))
    (folder / "code.py").write_text("2\n")
    first.keep(first.key(TASK), FOUND, [])
    assert recalled(first) is None


def test_result_of_another_environment_is_not_recalled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(folder)
    monkeypatch.setattr("pv.results.reuse.distributions", lambda: ())
    assert recalled(Reuse(find_project(folder))) is None


def test_result_is_forgotten_after_thirty_days(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(folder)
    now = Reuse(find_project(folder))._started / 1e9
    monkeypatch.setattr("time.time", lambda: now + 30 * 86_400)
    assert recalled(Reuse(find_project(folder))) == FOUND
    monkeypatch.setattr("time.time", lambda: now + 32 * 86_400)
    assert recalled(Reuse(find_project(folder))) is None


def test_damaged_file_is_reported_and_nothing_is_kept(folder: Path) -> None:
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text("no database\n" * 100)
    broken = kept(folder)
    assert recalled(broken) is None
    assert broken.problem == f"no result is reused or kept: {folder / FILE}: file is not a database; delete the file"
