"""A run is stopped at its limit, or killed before an operation."""

import threading
import time
from pathlib import Path
from unittest import SkipTest

import pytest
import torch

from pv.suites.training_loop import processes
from pv.suites.training_loop import run as run_module
from pv.suites.training_loop.processes import run_and_kill
from pv.suites.training_loop.run import Unfinished, limited


def test_endless_run_is_stopped_and_later_ones_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "FIRST_S", 0.4)
    monkeypatch.setattr(run_module, "LATER_S", 0.1)
    for seconds in ("0.4", "0.1"):
        with pytest.raises(Unfinished, match=f"stopped after {seconds} s of CPU time"), limited(tmp_path / "mark", int):
            spin()


def test_a_run_without_forwards_is_stopped_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "STUCK_S", 1.0)
    message = r"after 2 s of CPU time, the last 1 s without a forward$"
    with pytest.raises(Unfinished, match=message), limited(tmp_path / "unfinished", lambda: 4):
        spin()


def spin() -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:  # as a trainer that continues after errors does
            pass


def test_the_limit_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "FIRST_S", 0.1)
    with limited(tmp_path / "unfinished", int):
        pass
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    assert not (tmp_path / "unfinished").exists()


def writes(directory: Path) -> None:
    (directory / "a").write_text("a")
    (directory / "b").write_text("b")
    (directory / "b").rename(directory / "c")


@pytest.mark.parametrize(
    ("operation", "left"), [(0, []), (1, ["a"]), (2, ["a"]), (3, ["a", "b"]), (4, ["a", "b"]), (5, ["a", "c"])]
)
def test_run_is_killed_before_an_operation_or_in_an_open_file(tmp_path: Path, operation: int, left: list[str]) -> None:
    assert run_and_kill(lambda: writes(tmp_path), tmp_path, operation) is (operation < 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_run_is_killed_before_a_link_or_a_file_comes_into_the_directory(tmp_path: Path) -> None:
    (place := tmp_path / "place").mkdir()
    (tmp_path / "outside").touch()
    assert run_and_kill(lambda: (place / "latest").symlink_to("step-1"), place, 0)
    assert run_and_kill(lambda: (tmp_path / "outside").rename(place / "state"), place, 0)
    assert not list(place.iterdir())


@pytest.mark.parametrize("kind", [Path, str])
def test_run_is_killed_when_half_of_a_state_is_written_to_a_path(tmp_path: Path, kind: type) -> None:
    state, path = torch.arange(10_000), tmp_path / "state.pt"
    assert run_and_kill(lambda: torch.save(state, kind(path)), tmp_path, 0)
    assert 0 < path.stat().st_size < state.nbytes


def test_run_that_hangs_or_fails_in_a_fork_alone_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IDLE_S", 0.2)
    for run, ending in ((threading.Event().wait, "hangs"), (lambda: 1 / 0, "ends with status 1")):
        with pytest.raises(SkipTest, match=f"the run {ending} before it is killed"):
            run_and_kill(run, tmp_path, 0)
