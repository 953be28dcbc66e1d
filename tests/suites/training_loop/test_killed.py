from pathlib import Path

import pytest

from pv.suites.training_loop.killed import killed


def writes(directory: Path) -> None:
    (directory / "a").write_text("a")
    (directory / "b").write_text("b")
    (directory / "b").rename(directory / "c")


@pytest.mark.parametrize(("operation", "left"), [(0, []), (1, ["a"]), (2, ["a", "b"]), (3, ["a", "c"])])
def test_run_is_killed_before_an_operation(tmp_path: Path, operation: int, left: list[str]) -> None:
    assert killed(lambda: writes(tmp_path), tmp_path, operation) is (operation < 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_run_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="status 1"):
        killed(lambda: 1 / 0, tmp_path, 0)
