"""Several machines that carry out the attempts of one supervised run together.

The supervisor of the first machine leads: it decides which attempt comes next, and when the run is done. It announces
attempts and the verdict in a file that all machines share, in `OUT.machines` beside the output. The supervisors of the
other machines follow: they join every attempt that is announced, and end with the verdict.

    leader    announce attempt 1, run it ... announce attempt 2, run it ... announce the verdict, wait for the others
    follower  wait for an attempt, run its ranks ... wait for the next one ... read the verdict, end

A rank that ends on one machine ends the attempt on all, because the other ranks fail in their next collective. If a
rank is lost before it has connected to the others, they would wait for it until `--rank-timeout`. To avoid this wait:

- Before a machine joins an attempt, it writes the attempt to its mark, a file in the shared directory. After a restart
  its supervisor does not join the attempt again, but adds "lost" to the mark: the leader then ends the attempt.
- A follower kills its ranks if another attempt is announced, because the leader was lost and restarted.

The leader renews its file every second. A follower ignores a file that is not renewed: its leader was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reference_trainer.errors import OutputError
from reference_trainer.storage.files import atomic_write
from reference_trainer.supervision.heartbeat import call_periodically, claim_directory

EVERY_S = 1.0
"""Seconds after which a leader renews its announcement. Followers read it four times as often."""
LEAVE_S = 60.0
"""Seconds that a leader waits for the others to read its verdict."""
ANNOUNCED = "announced.json"
LOST = "lost "
"""Prefix of the attempt in the mark of a machine whose supervisor was lost during the attempt and restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines that start the same command, and meet by torch's rendezvous `c10d`.

    Attributes:
        count: The number of machines.
        endpoint: HOST:PORT of one of the machines, which serves the others.
        run_id: The name of the run, equal on all machines; runs that use an endpoint at the same time have different
            ones.
        address: The address of this machine for the others; by default its host name.
        rank: The number of this machine, from 0, in a supervised run; the first leads.
    """

    count: int
    endpoint: str
    run_id: str
    address: str | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The instruction of the leader to all machines: join an attempt or, with a verdict, end.

    Attributes:
        run_id: The id of the rendezvous of the attempt; empty to wait.
        arguments: The arguments of the command that the ranks run.
        verdict: The exit code; None if the run continues.
    """

    run_id: str = ""
    arguments: tuple[str, ...] = ()
    verdict: int | None = None


def place_of(out: Path) -> Path:
    """Return the directory that machines share, beside the output."""
    out = out.resolve()
    return out.with_name(f"{out.name}.machines")


class Leader:
    """The announcements of the first machine, in files that `leading` renews and removes.

    Attributes:
        has_announced: Whether this leader has written the files; before, files of another leader may exist.
    """

    def __init__(self, place: Path) -> None:
        self._place, self.has_announced = place, False

    def announce(self, announcement: Announcement) -> None:
        """Write an announcement, in place of the previous one. Raise `OutputError`."""
        _write(self._place / ANNOUNCED, json.dumps(asdict(announcement)))
        self.has_announced = True

    def lost(self, run_id: str) -> list[int]:
        """Return the numbers of the machines whose supervisors were restarted during the attempt `run_id`."""
        marks = {path: _read_text(path) for path in self._place.glob("machine-*")}
        return sorted(int(path.name.rpartition("-")[2]) for path, text in marks.items() if text == f"{LOST}{run_id}")

    def conclude(self, verdict: int) -> None:
        """Announce the verdict, and wait until the other machines have read it; at most `LEAVE_S` seconds."""
        self.announce(Announcement(verdict=verdict))
        end = time.monotonic() + LEAVE_S
        while any(self._place.glob("machine-*")) and time.monotonic() < end:
            time.sleep(EVERY_S / 4)


@contextmanager
def leading(out: Path) -> Iterator[Leader]:
    """Yield the announcements of a run, which are renewed in the block and removed at its end.

    Args:
        out: The output of the run, on a file system that all machines share.
    """
    place = place_of(out)
    leader = Leader(place)

    def renew() -> None:
        with suppress(OSError):
            if leader.has_announced:
                os.utime(place / ANNOUNCED)

    try:
        with call_periodically(renew, EVERY_S):
            yield leader
    finally:
        if leader.has_announced:
            with suppress(OSError):
                for path in place.iterdir():
                    path.unlink(missing_ok=True)
                place.rmdir()


def next_announcement(out: Path, joined: str, pause: Callable[[float], object] = time.sleep) -> Announcement:
    """Wait for a leader, and return its announcement: a verdict, or an attempt that is not `joined`.

    Args:
        out: The output of the run.
        joined: The `run_id` of the attempt that this machine has been part of; empty for none.
        pause: Waits a number of seconds.
    """
    path = place_of(out) / ANNOUNCED
    last_time: int | None = None
    while True:
        with suppress(OSError, ValueError, TypeError):
            time_ns = path.stat().st_mtime_ns
            announced = _read_announcement(path)
            # A leader that was killed may have left the file: wait until its modification time changes.
            is_renewed = last_time is not None and time_ns != last_time
            last_time = time_ns
            if is_renewed and (announced.verdict is not None or announced.run_id not in ("", joined)):
                return announced
        pause(EVERY_S / 4)


def is_replaced(out: Path, run_id: str) -> bool:
    """Return whether a leader has announced another attempt than `run_id`, or a verdict other than success."""
    try:
        announced = _read_announcement(place_of(out) / ANNOUNCED)
    except (OSError, ValueError, TypeError):
        return False
    if announced.verdict is not None:
        return announced.verdict != 0
    return announced.run_id != run_id


def _read_announcement(path: Path) -> Announcement:
    """Return the announcement in a file. Raise `OSError`, `ValueError` or `TypeError` if there is no valid one."""
    announcement = Announcement(**json.loads(path.read_text(encoding="utf-8")))
    return replace(announcement, arguments=tuple(announcement.arguments))  # JSON has lists


class Mark:
    """The file of a follower for the leader: empty, or the attempt that it joined, with `LOST` after a restart.

    Attributes:
        joined: The last attempt that the machine joined, also before a restart of its supervisor; empty for none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # A file with an attempt is from a supervisor of this machine that was lost during the attempt.
        self.joined = _read_text(path).removeprefix(LOST)
        _write(path, f"{LOST}{self.joined}" if self.joined else "")

    def join(self, run_id: str) -> None:
        """Write the attempt, before the machine joins it."""
        _write(self._path, run_id)
        self.joined = run_id

    def leave(self, *, joined: bool) -> None:
        """Empty the file after an attempt. joined: whether the machine connected to the others; else it can retry."""
        _write(self._path, "")
        self.joined = self.joined if joined else ""


@contextmanager
def following(out: Path, rank: int) -> Iterator[tuple[Mark, Path]]:
    """Write the mark of this machine for the leader; yield the mark, and a directory for the heartbeats of its ranks.

    Raise `OutputError` if another supervisor of this machine follows the same run with the same number.
    """
    place = place_of(out)
    name = hashlib.sha256(f"{place}/{rank}".encode()).hexdigest()[:16]
    beats = Path(tempfile.gettempdir()) / f"reference-trainer-{os.getuid()}-{name}"
    path = place / f"machine-{rank}"
    with claim_directory(beats, f"another supervisor of this machine follows {out} as number {rank}"):
        is_complete = False
        try:
            yield Mark(path), beats
            is_complete = True
        finally:
            # If an exception leaves an attempt that the other machines continue, its mark is kept for a restart.
            if is_complete or not _read_text(path):
                path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Write a file of the shared directory, atomically. Raise `OutputError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, lambda partial: partial.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _read_text(path: Path) -> str:
    """Return the text of a file; empty without the file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
