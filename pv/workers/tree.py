"""List the processes of a process tree on Linux, measure their memory and CPU time, and kill them."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37
PAGE, TICKS_PER_S = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def supports_fork_server() -> bool:
    """Return whether the system supports the fork server: /proc with the children of processes, and subreapers."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return False
    return _prctl(PR_SET_CHILD_SUBREAPER, int(is_subreaper()))  # without a change of the setting


def is_subreaper() -> bool:
    """Return whether orphaned descendants become children of this process."""
    value = ctypes.c_int()
    return _prctl(PR_GET_CHILD_SUBREAPER, ctypes.addressof(value)) and value.value == 1


def become_subreaper() -> None:
    """Make orphaned descendants children of this process, so that they stay in its tree."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Make this process a subreaper; when the last of several such contexts ends, restore the first setting."""
    _settings.append(is_subreaper())
    become_subreaper()
    try:
        yield
    finally:
        setting = _settings.pop()
        if not _settings:
            _prctl(PR_SET_CHILD_SUBREAPER, int(setting))


_settings: list[bool] = []
"""For each active context of `subreaper`, whether this process was a subreaper before."""


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    """Call prctl(2) with one argument; return whether the call succeeded."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) == 0)
    except (OSError, AttributeError):
        return False


def children(pid: int) -> list[int]:
    """Return the direct children of a process, whichever of its threads started them."""
    pids: list[int] = []
    # The process or one of its threads may end meanwhile.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                pids += map(int, (thread / "children").read_text().split())
    return pids


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    pids, unvisited = [], [pid]
    while unvisited:
        found = children(unvisited.pop())
        pids += found
        unvisited += found
    return pids


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return _stat(f"/proc/{pid}/stat")[0] not in "ZX"
    except (OSError, IndexError):
        return False


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process; ignore a process that has ended, or that belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants."""
    # 1. Stop the root, so that it cannot fork again.
    # 2. Kill its descendants. They may fork before they are killed, so list and kill them again until none is alive, at
    #    most 50 times.
    # 3. Kill the root last: after its death, its descendants would have another parent and could not be listed.
    kill(pid, signal.SIGSTOP)
    for _ in range(50):
        living = [process for process in descendants(pid) if is_alive(process)]
        if not living:
            break
        for process in living:
            kill(process)
    kill(pid)


def kill_all(pids: Iterable[int]) -> None:
    """Kill some processes and all their descendants."""
    for pid in pids:
        kill_tree(pid)


def find_marked(entry: str) -> list[int]:
    """Return the ids of all other running processes whose environment contains `entry` (`NAME=VALUE`)."""
    pids = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and entry.encode() in (path / "environ").read_bytes().split(b"\0"):
                pids.append(int(path.name))
        except OSError:
            continue  # the process ended meanwhile, or belongs to another user
    return [pid for pid in pids if pid != os.getpid() and is_alive(pid)]


@dataclass(frozen=True, slots=True)
class Usage:
    """The private memory and the CPU time of a process tree, and whether it is active.

    Attributes:
        private_bytes: Resident minus shared memory in bytes, so mapped files are not included.
        cpu_s: User and system time in seconds.
        active: Whether a thread runs, waits for a core, or waits for a disk.
    """

    private_bytes: int
    cpu_s: float
    active: bool


def usage(pid: int) -> Usage:
    """Return the usage of a process and its descendants; zeros for a process that does not exist."""
    pages, ticks, active = 0, 0, False
    for process in (pid, *descendants(pid)):
        try:
            _, resident, shared = Path(f"/proc/{process}/statm").read_text().split()[:3]
            # User and system time of the process, and of its children that have ended (fields 14 to 17 of proc(5)).
            times = _stat(f"/proc/{process}/stat")[11:15]
        except (OSError, ValueError):
            continue
        # R: a thread runs or waits for a core. D: a thread waits for a disk.
        active = active or any(state in "RD" for state in _states(process))
        pages += int(resident) - int(shared)
        ticks += sum(map(int, times))
    return Usage(pages * PAGE, ticks / TICKS_PER_S, active)


def _stat(path: str) -> list[str]:
    """Return the fields of the `stat` file of a process or thread, starting with its state (field 3 of proc(5))."""
    # The whole line cannot be split, because field 2, the name in brackets, may contain spaces and brackets.
    return Path(path).read_text().rpartition(")")[2].split()


def _states(pid: int) -> Iterator[str]:
    """Yield the state of each thread of a process."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                yield _stat(f"{thread}/stat")[0]


def count_threads() -> int:
    """Return the number of threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))
