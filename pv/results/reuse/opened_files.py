"""Which files of a project were opened by any process, as the kernel tells it.

A worker notes what Python opens. Libraries also open files in native code, and so do programs that a claim starts. The
kernel does not tell who opened a file, so it counts for each task that ran at that time.
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


class OpenedFilesLog:
    """The files below the root of a project that were opened to be read since this began.

    Where the kernel cannot tell, every file counts as opened.
    """

    def __init__(self, project: Project) -> None:
        self._root, self._evidence = project.root, project.evidence
        self._readers = Counter[str]()
        self._folders: dict[int, Path] = {}
        self._moment = 1
        """The number of the next look at what was opened."""
        self._last: dict[str, int] = {}
        """The look at which each file was found to be opened last."""
        self._by_all = set[str]()
        """What was opened while no task ran, as by libraries that are loaded once for all tasks."""
        self._began: dict[object, int] = {}
        self._queue = _libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        self._blind = self._queue < 0 or not all(map(self._watched, self._walk()))

    def begin(self, task: object) -> None:
        """Note that a task has just begun. It begins again where all workers were lost and libraries loaded anew."""
        moment = self._moment
        self._read()
        if task in self._began:
            self._by_all |= self._last.keys()
        self._began.setdefault(task, moment)

    def end(self, task: object) -> int:
        """Note that a task has ended, and return the moment of its beginning, 0 if it is unknown."""
        self._read()
        return self._began.pop(task, 0)

    def names(self, since: int = 0) -> set[str]:
        """Return the paths below the root of those that were opened since a moment, or by all tasks."""
        self._read()
        if self._blind:
            files = (entry for folder in self._walk() for entry in os.scandir(folder) if entry.is_file())
            return {os.path.relpath(entry.path, self._root) for entry in files}
        read = (name for name, count in self._readers.items() if count > 0)
        return {name for name in read if name in self._by_all or self._last.get(name, 0) >= since}

    def close(self) -> None:
        """Stop watching."""
        if self._queue >= 0:
            os.close(self._queue)
            self._queue, self._blind = -1, True

    def _watched(self, folder: Path) -> bool:
        number = _libc.inotify_add_watch(self._queue, os.fsencode(folder), IN_OPEN | IN_CLOSE_WRITE)
        self._folders[number] = folder
        return bool(number >= 0)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while not self._blind:
                self._note(os.read(self._queue, 1 << 16))
        self._moment += 1

    def _note(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, mask, _, length = HEADER.unpack_from(data, at)
            name = os.fsdecode(data[at + HEADER.size : at + HEADER.size + length].rstrip(b"\0"))
            at += HEADER.size + length
            self._blind = self._blind or bool(mask & IN_Q_OVERFLOW)
            if name and number in self._folders and (path := self._folders[number] / name).is_file():
                file = os.path.relpath(path, self._root)
                self._readers[file] += 1 if mask & IN_OPEN else -1
                if mask & IN_OPEN:
                    self._last[file] = self._moment
                    if not self._began:
                        self._by_all.add(file)

    def _walk(self) -> Iterator[Path]:
        """Yield the folders of the project, but for caches, installed packages and recorded evidence."""
        for folder, folders, _ in os.walk(self._root):
            here = Path(folder)
            folders[:] = [name for name in folders if self._counts(here, name)]
            yield here

    def _counts(self, here: Path, name: str) -> bool:
        return not (is_cache(here / name) or is_installed(f"{here / name}/") or here / name == self._evidence)


_libc = ctypes.CDLL(None)
