"""Long counterexamples are kept in files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pv.commands.replays import kept
from pv.engines.replay import read
from pv.errors import UsageError
from pv.results.trial import Counterexample, Evidence, Trial, TrialStatus
from pv.source.project import find_project

SHORT = Trial(
    falsifier="F-1",
    device="cpu",
    status=TrialStatus.REFUTED,
    counterexample=Counterexample(arguments={"n": 1}, exact=True, error="no"),
)
LONG = replace(SHORT, counterexample=Counterexample(arguments={"n": [1] * 200}, exact=True, error="no"))


def file_of(trial: Trial, project: Path) -> str:
    evidence = kept(find_project(project), Evidence(trials={("F-1", "cpu"): trial}))
    found = evidence.trials["F-1", "cpu"].counterexample
    assert found is not None
    return found.file


def test_only_a_long_example_is_written_and_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_of(SHORT, tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert file_of(LONG, tmp_path) == ".pv_cache/replay/F-1-cpu.json"
    assert json.loads(read("@.pv_cache/replay/F-1-cpu.json")) == {"n": [1] * 200}


def test_folder_that_cannot_be_written_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / ".pv_cache").write_text("not a folder")
    assert file_of(LONG, tmp_path) == ""


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read: .*missing\.json: No such file or directory"):
        read(f"@{tmp_path}/missing.json")
    assert read("{}") == "{}"
