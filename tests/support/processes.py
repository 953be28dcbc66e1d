"""Runs of commands in a process of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `pv`."""
    return _module("pv", *arguments, **environment)


def run_pytest(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return _module("pytest", "-p", "no:cacheprovider", "-rs", *arguments, COLUMNS="200")


def _module(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=given, timeout=600)


def git(*words: str, cwd: Path | None = None) -> str:
    """Run git as an author of its own, and return what it printed."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def wait_for(condition: Callable[[], object], what: str, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
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
