"""Log with inotify which files of a project were opened, by any process.

A worker records only the files that Python opens. Native code of libraries, and programs that a claim starts, also open
files. The kernel does not report which process opened a file, so the file counts for every task that ran at that time.
"""

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pv.source.project import Project, is_cache, is_installed

IN_CLOSE_WRITE, IN_OPEN, IN_Q_OVERFLOW = 0x8, 0x20, 0x4000
IN_NONBLOCK, IN_CLOEXEC = 0o4000, 0o2000000
HEADER = struct.Struct("iIII")
"""The fixed part of `struct inotify_event`: watch, mask, cookie, length of the name that follows."""


class OpenedFilesLog:
    """The files below the root of a project that were opened to be read since this object was created.

    If inotify is not available, or its queue overflows, every file counts as opened.

    The methods measure time in moments: a moment is the number of a read of the queue, and all events of one read have
    the same moment. A file counts for a task if it was opened at or after the moment at which the task began. Files
    that were opened while no task ran count for all tasks.

    Args:
        project: The project whose folders are watched, except caches, installed packages and recorded evidence. Folders
            that are created later are not watched.
    """

    def __init__(self, project: Project) -> None:
        self._root, self._evidence = project.root, project.evidence
        self._reads = Counter[str]()
        """By file: the number of opens, minus the number of closes after writing, since an open to write is no read."""
        self._folders: dict[int, Path] = {}
        self._moment = 1
        """The number of the next read of the queue."""
        self._last_opened: dict[str, int] = {}
        """The moment at which each file was last opened."""
        self._opened_for_all = set[str]()
        """The files that were opened while no task ran, for example by libraries that are loaded once for all tasks."""
        self._began: dict[object, int] = {}
        """The moment at which each running task began."""
        # The C library of macOS does not have the function.
        self._queue = _libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC) if hasattr(_libc, "inotify_init1") else -1
        self._is_incomplete = self._queue < 0 or not all(map(self._watch, self._walk()))
        """Whether events may be missing; every file then counts as opened."""

    def begin(self, task: object) -> None:
        """Record that a task has begun.

        If the fork server was killed, a task begins again. All files that were opened until then count for all tasks:
        the old fork server loaded the libraries for all of them.
        """
        moment = self._moment
        self._read_events()
        if task in self._began:
            self._opened_for_all |= self._last_opened.keys()
        self._began.setdefault(task, moment)

    def end(self, task: object) -> int:
        """Record that a task has ended, and return the moment at which the task began; 0 if that is unknown."""
        self._read_events()
        return self._began.pop(task, 0)

    def opened_since(self, moment: int = 0) -> set[str]:
        """Return the paths below the root of the files that were opened since a moment, or for all tasks."""
        self._read_events()
        if self._is_incomplete:
            files = (entry for folder in self._walk() for entry in os.scandir(folder) if entry.is_file())
            return {os.path.relpath(entry.path, self._root) for entry in files}
        names = (name for name, count in self._reads.items() if count > 0)
        return {name for name in names if name in self._opened_for_all or self._last_opened.get(name, 0) >= moment}

    def close(self) -> None:
        """Stop watching."""
        if self._queue >= 0:
            os.close(self._queue)
            self._queue, self._is_incomplete = -1, True

    def _watch(self, folder: Path) -> bool:
        """Watch a folder. Return False if the kernel refuses, for example because the user has too many watches."""
        watch = _libc.inotify_add_watch(self._queue, os.fsencode(folder), IN_OPEN | IN_CLOSE_WRITE)
        self._folders[watch] = folder
        return bool(watch >= 0)

    def _read_events(self) -> None:
        """Record all events in the queue, and begin the next moment."""
        with suppress(BlockingIOError):
            while not self._is_incomplete:
                self._record(os.read(self._queue, 1 << 16))
        self._moment += 1

    def _record(self, data: bytes) -> None:
        """Record the events of one read of the queue."""
        offset = 0
        while offset < len(data):
            watch, mask, _, length = HEADER.unpack_from(data, offset)
            offset += HEADER.size
            name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))  # padded with zero bytes
            offset += length
            self._is_incomplete = self._is_incomplete or bool(mask & IN_Q_OVERFLOW)
            if name and watch in self._folders and (path := self._folders[watch] / name).is_file():
                file = os.path.relpath(path, self._root)
                self._reads[file] += 1 if mask & IN_OPEN else -1
                if mask & IN_OPEN:
                    self._last_opened[file] = self._moment
                    if not self._began:
                        self._opened_for_all.add(file)

    def _walk(self) -> Iterator[Path]:
        """Yield the folders of the project, except caches, installed packages and recorded evidence."""
        for folder, folders, _ in os.walk(self._root):
            parent = Path(folder)
            folders[:] = [name for name in folders if self._is_watched(parent, name)]
            yield parent

    def _is_watched(self, parent: Path, name: str) -> bool:
        return not (is_cache(parent / name) or is_installed(f"{parent / name}/") or parent / name == self._evidence)


_libc = ctypes.CDLL(None)
