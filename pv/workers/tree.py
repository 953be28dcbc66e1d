"""Process trees on Linux: their members, their memory, and how to kill them."""

import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PAGE = os.sysconf("SC_PAGE_SIZE")


def supported() -> bool:
    """Return whether the kernel has what the fork server needs: /proc with children, subreapers, death signals."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return False
    return _prctl(PR_SET_CHILD_SUBREAPER, 1) and _prctl(PR_SET_CHILD_SUBREAPER, 0)


def become_subreaper(on: bool = True) -> None:
    """Make orphans below this process its children, so that they stay in its tree."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(on))


def die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def children(pid: int) -> list[int]:
    """Return the direct children of a process, of all its threads."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    found, todo = [], [pid]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    return found


def alive(pid: int) -> bool:
    """Return whether the process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_tree(pid: int) -> None:
    """Kill a process and all below it. The root is stopped first, so that it cannot fork again."""
    kill(pid, signal.SIGSTOP)
    for _ in range(50):
        living = [p for p in descendants(pid) if alive(p)]
        if not living:
            break
        for process in living:
            kill(process)
    kill(pid)


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        kill_tree(pid)


def marked(entry: str) -> list[int]:
    """Return the processes that run with `NAME=VALUE` in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and entry.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue  # it ended meanwhile, or belongs to another user
    return [pid for pid in found if pid != os.getpid() and alive(pid)]


def private_bytes(pid: int) -> int:
    """Return the private memory of a process tree in bytes: resident less shared, so mapped files do not count."""
    pages = 0
    for process in (pid, *descendants(pid)):
        try:
            _, resident, shared = Path(f"/proc/{process}/statm").read_text().split()[:3]
        except (OSError, ValueError):
            continue
        pages += int(resident) - int(shared)
    return pages * PAGE


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
