"""A path that leads to no file, or to several, is answered with a refusal or with every contract there."""

import os
from collections.abc import Callable
from pathlib import Path

from pv.contract.load import load

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")


def test_a_missing_file_is_refused(tmp_path: Path, refusals: Refusals) -> None:
    assert refusals(tmp_path / "none.yaml") == ["1:1 PV001 cannot be read: No such file or directory"]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, refusals: Refusals) -> None:
    os.mkfifo(tmp_path / "contract.yaml")
    assert refusals(tmp_path / "contract.yaml") == ["1:1 PV001 cannot be read: not a regular file"]


def test_a_link_to_itself_is_refused(tmp_path: Path, refusals: Refusals) -> None:
    path = tmp_path / "contract.yaml"
    path.symlink_to(path)
    assert refusals(path) == ["1:1 PV001 cannot be read: Too many levels of symbolic links"]


def test_folders_that_link_to_each_other_are_read_once(tmp_path: Path, write: Write) -> None:
    write(GOOD)
    (tmp_path / "again").symlink_to(tmp_path)
    assert [contract.id for contract in load([tmp_path, tmp_path / "again", tmp_path / "contract.yaml"]).contracts] == [
        "good"
    ]


def test_every_file_of_a_folder_is_judged_by_itself(tmp_path: Path, write: Write) -> None:
    write(GOOD)
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "z.yml").write_bytes(b"\xff")
    loaded = load([tmp_path])
    assert [contract.id for contract in loaded.contracts] == ["good"]
    assert [(f.location.path.name, f.code) for f in loaded.findings] == [("a.yaml", "PV002"), ("z.yml", "PV001")]
