"""Several machines that carry out the attempts of one supervised run together.

The supervisor of the first machine leads: it decides which attempt comes next, and when the run is done. It announces
attempts and the verdict in a file that all machines share, in `OUT.machines` beside the output. The supervisors of the
other machines follow: they join every attempt that is announced, and end with the verdict.

    leader    announce attempt 1, run it ... announce attempt 2, run it ... announce the verdict, wait for the others
    follower  wait for an attempt, run its ranks ... wait for the next one ... read the verdict, end

A rank that ends on one machine ends the attempt on all, because the other ranks fail in their next collective. Each
attempt has a rendezvous of its own. Once the ranks of the leader run, the leader withdraws the attempt, so that a
machine that comes back waits for the next one: torch's agents would let it into the running attempt. The leader renews
its file every second; a follower does not believe a file that is not renewed, which a leader has left that was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from reference_trainer.errors import OutputError
from reference_trainer.storage.files import atomic_write
from reference_trainer.supervision.heartbeat import beats as read_beats

EVERY_S = 1.0
"""Seconds after which a leader renews its announcement."""
LEAVE_S = 60.0
"""Seconds that a leader waits for the others to read its verdict."""
ANNOUNCED = "announced.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines that start the same command, and meet by torch's rendezvous `c10d`.

    count: their number. endpoint: HOST:PORT of one of them, which serves the others. run_id: equal on all, another one
    for every run that uses the endpoint at a time. address: of this machine for the others; by default its host name.
    rank: the number of this machine, from 0, in a supervised run; the first leads.
    """

    count: int
    endpoint: str
    run_id: str
    address: str | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What the leader wants of all machines: an attempt, or with a verdict their end.

    run_id: of the rendezvous of the attempt; empty to wait. arguments: of the command that the ranks run. verdict: the
    exit code.
    """

    run_id: str = ""
    arguments: tuple[str, ...] = ()
    verdict: int | None = None


def place_of(out: Path) -> Path:
    """Return the directory that machines share, beside the output."""
    out = out.resolve()
    return out.with_name(f"{out.name}.machines")


class Leader:
    """The announcements of the first machine. `close` takes them back.

    Args:
        out: The output of the run, on a file system that all machines share.
    """

    def __init__(self, out: Path) -> None:
        self._place, self._closed = place_of(out), threading.Event()
        self._thread: threading.Thread | None = None

    def announce(self, announcement: Announcement) -> None:
        """Write an announcement for the others, in place of the one before. Raise `OutputError` if that fails."""
        text = json.dumps(asdict(announcement))
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            atomic_write(self._place / ANNOUNCED, lambda path: path.write_text(text, encoding="utf-8"))
        except OSError as error:
            raise OutputError(f"cannot write {self._place / ANNOUNCED}: {error.strerror}") from error
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="announcement", daemon=True)
            self._thread.start()

    @contextmanager
    def attempt(self, announcement: Announcement, beats: Path) -> Iterator[None]:
        """Announce an attempt, and withdraw it once a rank has written a heartbeat into the directory `beats`."""
        ended = threading.Event()

        def withdraw() -> None:
            while not ended.wait(EVERY_S / 4):
                if read_beats(beats):
                    self.announce(Announcement())
                    return

        self.announce(announcement)
        thread = threading.Thread(target=withdraw, name="withdrawal", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def conclude(self, verdict: int) -> None:
        """Announce the verdict, and wait until the other machines have read it; at most `LEAVE_S` seconds."""
        self.announce(Announcement(verdict=verdict))
        end = time.monotonic() + LEAVE_S
        while any(self._place.glob("machine-*")) and time.monotonic() < end:
            time.sleep(EVERY_S / 4)

    def close(self) -> None:
        """Stop renewing, and remove the files that are left."""
        self._closed.set()
        if self._thread is None:
            return
        self._thread.join()
        with suppress(OSError):
            for path in self._place.iterdir():
                path.unlink(missing_ok=True)
            self._place.rmdir()

    def _renew(self) -> None:
        while not self._closed.wait(EVERY_S):
            with suppress(OSError):
                os.utime(self._place / ANNOUNCED)


def next_announcement(out: Path, joined: str, pause: Callable[[float], object] = time.sleep) -> Announcement:
    """Wait for a leader, and return its announcement: a verdict, or an attempt that is not `joined`.

    Args:
        out: The output of the run.
        joined: The `run_id` of the attempt that this machine has been part of; empty for none.
        pause: Waits a number of seconds.
    """
    path, before = place_of(out) / ANNOUNCED, -1
    while True:
        with suppress(OSError, ValueError, TypeError):
            renewed = path.stat().st_mtime_ns
            read = Announcement(**json.loads(path.read_text(encoding="utf-8")))
            # The first look may find what a leader has left that was killed.
            is_alive, before = before not in (-1, renewed), renewed
            if is_alive and (read.verdict is not None or read.run_id not in ("", joined)):
                return Announcement(run_id=read.run_id, arguments=tuple(read.arguments), verdict=read.verdict)
        pause(EVERY_S / 4)


@contextmanager
def following(out: Path, rank: int) -> Iterator[Path]:
    """Let the leader know of this machine, and yield a directory of the machine for the heartbeats of its ranks.

    Raise `OutputError` if another supervisor of this machine follows the same run with the same number.
    """
    place = place_of(out)
    name = hashlib.sha256(f"{place}/{rank}".encode()).hexdigest()[:16]
    beats = Path(tempfile.gettempdir()) / f"reference-trainer-{os.getuid()}-{name}"
    mark = place / f"machine-{rank}"
    try:
        beats.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(beats, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            place.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError:
            os.close(descriptor)
            raise
    except BlockingIOError as error:
        raise OutputError(f"another supervisor of this machine follows {out} as number {rank}") from error
    except OSError as error:
        raise OutputError(f"cannot follow the run in {out}: {error.strerror}: {error.filename or beats}") from error
    try:
        yield beats
    finally:
        with suppress(OSError):
            mark.unlink()
        os.close(descriptor)
        with suppress(OSError):
            beats.rmdir()
