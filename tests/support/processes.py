"""Runs of commands in a process of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any

Ended = subprocess.CompletedProcess[str]


def python(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] = os.environ, out: Any = PIPE, **others: str
) -> Ended:
    """Run a new interpreter. out: its standard output. others: variables in addition to `env`."""
    options: Any = {"env": {**env, **others}, "stdin": subprocess.DEVNULL, "stdout": out, "stderr": PIPE, "text": True}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, timeout=600, **options)


def run(*arguments: str, **environment: str) -> Ended:
    """Run `pv`."""
    return python("-m", "pv", *arguments, **environment)


def run_pytest(*arguments: str) -> Ended:
    return python("-m", "pytest", "-p", "no:cacheprovider", "-rs", *arguments, COLUMNS="200")


def git(*words: str, cwd: Path | None = None) -> str:
    """Run git as an author of its own, and return what it printed."""
    # A machine of CI has no author configured, and its default branch may have another name.
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def wait_for(condition: Callable[[], object], event: str, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {event}"
        time.sleep(0.01)


def marked_by(mark: str) -> list[int]:
    """Return the other processes that have a text in their environment."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _has(pid, mark)]


def _has(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
