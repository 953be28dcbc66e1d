"""Which files were opened to be read is known, whoever opened them."""

import subprocess
from pathlib import Path

import pytest

from pv.results.reuse import opened
from pv.results.reuse.opened import Opened
from pv.source.project import find_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data/one.txt", "data/two.txt", "three.txt", ".hidden/four.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    return tmp_path


def test_file_that_another_program_read_is_named(folder: Path) -> None:
    found = Opened(find_project(folder))
    subprocess.run(["cat", folder / "data/one.txt"], check=True, capture_output=True)
    assert found.names() == {"data/one.txt"}
    found.close()


def test_file_that_was_only_written_is_not_named(folder: Path) -> None:
    found = Opened(find_project(folder))
    with (folder / "three.txt").open("a") as file:
        file.write("2\n")
    (folder / "data/new.txt").write_text("2\n")
    assert found.names() == set()
    found.close()


def test_every_file_counts_where_the_kernel_cannot_tell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened._libc, "inotify_init1", lambda flags: -1)
    assert Opened(find_project(folder)).names() == {".hidden/four.txt", "data/one.txt", "data/two.txt", "three.txt"}
