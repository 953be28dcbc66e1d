"""The limit of a cache, with processes that use entries, remove them together, and are killed while they remove."""

import fcntl
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.storage import produce_once
from reference_trainer.storage.produce_once import keep_within, used_entry
from tests.reference_trainer.forked import fork
from tests.support.processes import wait_for

SIZE = 1000


def produce(place: Path) -> None:
    (place / "tokens").write_bytes(bytes(SIZE))


def entry(cache: Path, number: int) -> Path:
    """Use an entry; one of a smaller number was used earlier."""
    with used_entry(cache, "chats", {"number": number}, produce) as path:
        os.utime(path / "manifest.json", ns=(number, number))
    return path


def whole(size: int = 1) -> int:
    """Return the bytes of `size` entries, with room for half of another one."""
    return int((size + 0.5) * (SIZE + 180))


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if not path.name.endswith(".lock")}


def test_least_recently_used_entries_are_removed_and_nothing_else(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    entries = [entry(cache, number) for number in range(1, 6)]
    entry(cache, 2)
    with used_entry(cache, "chats", {"number": 1}, produce):
        pass  # the first one is the newest now
    others = [
        cache / name
        for name in ("teacher-1", "chats-2024", entries[0].name[:-1], f"x{entries[0].name}", f"{entries[0].name}.mine")
    ]
    for path in others:
        shutil.copytree(entries[0], path)
    outside = shutil.copytree(entries[0], tmp_path / "outside")
    link = cache / f"chats-{'0' * 64}"
    link.symlink_to(outside)
    (cache / f"chats-{'1' * 64}").touch()
    kept = {*(path.name for path in others), link.name, f"chats-{'1' * 64}"}
    damaged = entries[1].rename(cache / f"{entries[1].name}.damaged-x")
    os.utime(damaged / "manifest.json", ns=(0, 0))
    lines = keep_within(cache, "chats", whole(2))
    assert names(cache) == {entries[0].name, entries[4].name, *kept}
    assert len(lines) == 1 and "of the least recently used chats" in lines[0]
    assert keep_within(cache, "chats", whole(2)) == [] and (outside / "tokens").exists()


def test_entry_that_a_process_uses_is_kept_until_the_process_is_killed(tmp_path: Path) -> None:
    path = entry(tmp_path, 1)

    def use() -> None:
        with used_entry(tmp_path, "chats", {"number": 1}, produce):
            (tmp_path / "ready").touch()
            signal.pause()

    pid = fork(use)
    wait_for((tmp_path / "ready").exists, "the process")
    os.utime(path / "manifest.json", ns=(1, 1))
    new = entry(tmp_path, 2)
    assert keep_within(tmp_path, "chats", whole()) != [] and path.exists() and not new.exists()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    keep_within(tmp_path, "chats", 0)
    assert not path.exists()


def test_entry_that_is_removed_before_its_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock, removed = entry(tmp_path, 1), fcntl.flock, list[bool]()

    def late(file: Any, operation: int) -> None:
        if operation == fcntl.LOCK_SH and not removed:
            keep_within(tmp_path, "chats", 0)
            removed.append(not path.exists())
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with used_entry(tmp_path, "chats", {"number": 1}, produce):
        assert removed == [True] and (path / "tokens").stat().st_size == SIZE


def test_killed_removal_is_finished_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = entry(tmp_path, 1)

    def half(place: Path) -> None:
        (place / "tokens").unlink()
        (tmp_path / "ready").touch()
        signal.pause()

    with monkeypatch.context() as patch:
        patch.setattr(produce_once.shutil, "rmtree", half)
        pid = fork(lambda: keep_within(tmp_path, "chats", 0))
        wait_for((tmp_path / "ready").exists, "the process")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    (tmp_path / "ready").unlink()
    assert not path.exists() and len(names(tmp_path)) == 1
    keep_within(tmp_path, "chats", whole())
    assert names(tmp_path) == set()
    assert (entry(tmp_path, 1) / "tokens").stat().st_size == SIZE


def test_directory_that_cannot_be_removed_has_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the others are removed."""
    first, second = entry(tmp_path, 1), entry(tmp_path, 2)
    remove = shutil.rmtree

    def refusing(place: Path) -> None:
        if first.name in place.name:
            raise PermissionError(13, "Permission denied", str(place))
        remove(place)

    monkeypatch.setattr(produce_once.shutil, "rmtree", refusing)
    lines = keep_within(tmp_path, "chats", 0)
    assert not second.exists() and [line for line in lines if line.endswith(": Permission denied")]
    assert keep_within(tmp_path / "missing", "chats", 0)[0].endswith("No such file or directory")


def test_processes_that_use_and_remove_at_once_lose_no_entry_in_use(tmp_path: Path) -> None:
    """Four processes use one of two entries and remove all that is beyond one; whatever one uses stays whole."""

    def work(number: int) -> None:
        for turn in range(40):
            with used_entry(tmp_path, "chats", {"number": (number + turn) % 3}, produce) as path:
                keep_within(tmp_path, "chats", whole())
                if (path / "tokens").stat().st_size != SIZE or not (path / "manifest.json").exists():
                    os._exit(1)
        (tmp_path / f"done-{number}").touch()

    pids = [fork(lambda number=number: work(number)) for number in range(4)]  # type: ignore[misc]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * 4 and len(list(tmp_path.glob("done-*"))) == 4
    keep_within(tmp_path, "chats", whole())
    assert len([name for name in names(tmp_path) if name.startswith("chats-")]) == 1
    assert not list(tmp_path.glob("*.damaged-*")) and not list(tmp_path.glob(".*.partial-*"))


def test_two_removals_at_once_remove_no_more_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(tmp_path, number) for number in range(1, 5)]
    remove = shutil.rmtree
    monkeypatch.setattr(produce_once.shutil, "rmtree", lambda place: (time.sleep(0.3), remove(place)))
    pids = [fork(lambda: keep_within(tmp_path, "chats", whole(2))) for _ in range(2)]
    for pid in pids:
        os.waitpid(pid, 0)
    assert names(tmp_path) == {path.name for path in entries[2:]}
