"""A path that leads to no file, or to several, is answered with a refusal or with every contract there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.load import load

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")


def test_a_folder_in_a_contracts_place_holds_no_contract(tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").mkdir()
    assert load([tmp_path / "contract.yaml"]) == load([])


def test_a_missing_file_is_refused(tmp_path: Path, refusals: Refusals) -> None:
    assert refusals(tmp_path / "none.yaml") == ["1:1 PV001 cannot be read: No such file or directory"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_refused(write: Write, refusals: Refusals) -> None:
    path = write(GOOD)
    path.chmod(0)
    assert refusals(path) == ["1:1 PV001 cannot be read: Permission denied"]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, refusals: Refusals) -> None:
    os.mkfifo(tmp_path / "contract.yaml")
    assert refusals(tmp_path / "contract.yaml") == ["1:1 PV001 cannot be read: not a regular file"]


def test_a_device_is_refused(refusals: Refusals) -> None:
    assert refusals(Path("/dev/zero")) == ["1:1 PV001 cannot be read: not a regular file"]


def test_a_link_to_itself_is_refused(tmp_path: Path, refusals: Refusals) -> None:
    path = tmp_path / "contract.yaml"
    path.symlink_to(path)
    assert refusals(path) == ["1:1 PV001 cannot be read: Too many levels of symbolic links"]


def test_a_link_to_nothing_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").symlink_to(tmp_path / "none")
    assert [f.code for f in load([tmp_path]).findings] == ["PV001"]


def test_a_name_that_is_no_path_is_refused(refusals: Refusals) -> None:
    assert refusals(Path("a\0b.yaml")) == ["1:1 PV001 cannot be read: embedded null byte"]


def test_a_name_that_is_too_long_is_refused(refusals: Refusals) -> None:
    assert refusals(Path("a" * 300 + ".yaml")) == ["1:1 PV001 cannot be read: File name too long"]


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


def existing(name: str, depends_on: str) -> str:
    return f"metadata: {{version: 1.0.0, description: {name}, depends_on: [{depends_on}]}}\nequations: {{}}\n"


def test_contracts_that_depend_on_each_other_are_both_read(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a"), ("c", "c")):
        (tmp_path / f"{name}.yaml").write_text(existing(name, other))
    assert [contract.id for contract in load([tmp_path]).contracts] == ["a", "b", "c"]
    assert load([tmp_path]).findings == ()
