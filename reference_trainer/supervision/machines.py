"""Several machines that carry out the attempts of one supervised run together.

The supervisor of the first machine leads: it decides which attempt comes next, and when the run is done. It announces
attempts and the verdict in a file that all machines share, in `OUT.machines` beside the output. The supervisors of the
other machines follow: they join every attempt that is announced, and end with the verdict.

    leader    announce attempt 1, run it ... announce attempt 2, run it ... announce the verdict, wait for the others
    follower  wait for an attempt, run its ranks ... wait for the next one ... read the verdict, end

A rank that ends on one machine ends the attempt on all machines, because the other ranks fail in their next collective
operation. If a rank is lost before it has connected to the other ranks, these would wait until `--rank-timeout`. To
avoid this wait:

- Before a machine joins an attempt, it writes the attempt to its mark, a file in the shared directory. A supervisor
  that was restarted during an attempt does not join this attempt again. Instead it adds "lost" to the mark, and the
  leader ends the attempt.
- A follower kills its ranks if the leader announces another attempt before these ranks have ended: the leader was
  restarted.

The leader renews its file every second. A follower ignores a file that is not renewed, because its leader was killed.
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
"""Interval in seconds at which a leader renews its announcement. Followers read it four times as often."""
LEAVE_S = 60.0
"""Longest time in seconds that a leader waits until the other machines have read its verdict."""
ANNOUNCED = "announced.json"
LOST = "lost "
"""Prefix of the attempt in the mark of a machine whose supervisor was lost during the attempt and restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines that start the same command, and connect by the rendezvous `c10d` of PyTorch.

    Attributes:
        count: The number of machines.
        endpoint: HOST:PORT of the machine that serves the rendezvous.
        run_id: The name of the run, equal on all machines. Runs that use the same endpoint at the same time need
            different names.
        address: The address at which the other machines reach this one; by default its host name.
        rank: The number of this machine, from 0, in a supervised run; machine 0 leads.
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
        run_id: The id of the attempt, by which its machines connect: the `run_id` of `Machines`, and the name of the
            attempt; empty if the machines must wait.
        arguments: The arguments of the command that the ranks run.
        verdict: The exit code; None if the run continues.
    """

    run_id: str = ""
    arguments: tuple[str, ...] = ()
    verdict: int | None = None


def shared_directory(out: Path) -> Path:
    """Return the directory beside the output in which the machines of a run write their files."""
    out = out.resolve()
    return out.with_name(f"{out.name}.machines")


class Leader:
    """Writes the announcements of the first machine, and reads the marks of the others.

    Attributes:
        has_announced: Whether this leader has written an announcement. Until then, files may be from another leader.
    """

    def __init__(self, place: Path) -> None:
        self._place, self.has_announced = place, False

    def announce(self, announcement: Announcement) -> None:
        """Replace the announcement. Raise `OutputError` if it cannot be written."""
        _write(self._place / ANNOUNCED, json.dumps(asdict(announcement)))
        self.has_announced = True

    def lost_machines(self, attempt_id: str) -> list[int]:
        """Return the numbers of the machines whose supervisors were restarted during the attempt `attempt_id`."""
        marks, lost = {path: _read_text(path) for path in self._place.glob("machine-*")}, f"{LOST}{attempt_id}"
        return sorted(int(path.name.rpartition("-")[2]) for path, text in marks.items() if text == lost)

    def conclude(self, verdict: int) -> None:
        """Announce the verdict, and wait at most `LEAVE_S` seconds for the other machines to remove their marks."""
        self.announce(Announcement(verdict=verdict))
        end = time.monotonic() + LEAVE_S
        while any(self._place.glob("machine-*")) and time.monotonic() < end:
            time.sleep(EVERY_S / 4)


@contextmanager
def leading(out: Path) -> Iterator[Leader]:
    """Yield the `Leader` of a run. Renew its announcement during the block, and remove the shared files at the end.

    Args:
        out: The output of the run, on a file system that all machines share.
    """
    place = shared_directory(out)
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
        joined: The id of the last attempt that this machine joined; empty for none.
        pause: A function that waits for a number of seconds.
    """
    path = shared_directory(out) / ANNOUNCED
    last_time: int | None = None
    while True:
        with suppress(OSError, ValueError, TypeError):
            time_ns = path.stat().st_mtime_ns
            announced = _read_announcement(path)
            # The file may be from a leader that was killed, so wait until its modification time changes.
            is_renewed = last_time is not None and time_ns != last_time
            last_time = time_ns
            if is_renewed and (announced.verdict is not None or announced.run_id not in ("", joined)):
                return announced
        pause(EVERY_S / 4)


def is_replaced(out: Path, attempt_id: str) -> bool:
    """Return whether a leader has announced another attempt, a wait, or a verdict other than success."""
    try:
        announced = _read_announcement(shared_directory(out) / ANNOUNCED)
    except (OSError, ValueError, TypeError):
        return False
    if announced.verdict is not None:
        return announced.verdict != 0
    return announced.run_id != attempt_id


def _read_announcement(path: Path) -> Announcement:
    """Return the announcement in a file. Raise `OSError`, `ValueError` or `TypeError` if there is no valid one."""
    announcement = Announcement(**json.loads(path.read_text(encoding="utf-8")))
    return replace(announcement, arguments=tuple(announcement.arguments))  # JSON has lists


class Mark:
    """The file by which a follower informs the leader.

    The file is empty while the machine is in no attempt. During an attempt, its text is the id of the attempt; if
    the supervisor was restarted during the attempt, the text is `LOST` and this id.

    Attributes:
        joined: The id of the last attempt that the machine joined, even if its supervisor was restarted since;
            empty for none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # If the file contains an attempt, an earlier supervisor of this machine was killed during that attempt.
        self.joined = _read_text(path).removeprefix(LOST)
        _write(path, f"{LOST}{self.joined}" if self.joined else "")

    def join(self, attempt_id: str) -> None:
        """Write the attempt to the file. Call this before the machine joins the attempt."""
        _write(self._path, attempt_id)
        self.joined = attempt_id

    def leave(self, *, connected: bool) -> None:
        """Empty the file after an attempt.

        Args:
            connected: Whether the machine connected to the other machines. If not, it may join the same attempt again.
        """
        _write(self._path, "")
        self.joined = self.joined if connected else ""


@contextmanager
def following(out: Path, rank: int) -> Iterator[tuple[Mark, Path]]:
    """Create the mark of this machine; yield the mark and a directory for the heartbeats of the ranks of this machine.

    Raise `OutputError` if another supervisor of this machine follows the same run with the same number.
    """
    place = shared_directory(out)
    name = hashlib.sha256(f"{place}/{rank}".encode()).hexdigest()[:16]
    beats = Path(tempfile.gettempdir()) / f"reference-trainer-{os.getuid()}-{name}"
    path = place / f"machine-{rank}"
    with claim_directory(beats, f"another supervisor of this machine follows {out} as number {rank}"):
        is_complete = False
        try:
            yield Mark(path), beats
            is_complete = True
        finally:
            # After an exception during an attempt, keep the mark: a restarted supervisor must not join again.
            if is_complete or not _read_text(path):
                path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Write a file of the shared directory atomically. Raise `OutputError` if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, lambda partial: partial.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _read_text(path: Path) -> str:
    """Return the text of a file; "" if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
