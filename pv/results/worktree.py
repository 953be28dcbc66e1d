"""Read the commit of a git working tree, and compute digests of its files and of its uncommitted changes."""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pv.source.digest import digest_data
from pv.source.project import Project

SOURCES = (".py", ".yaml", ".yml", ".toml")
"""Suffixes of the untracked files that count as changes; a validation itself writes other files, such as reports."""
STATUS = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
"""Arguments of git that list the changed files. An entry is two letters of state, a space, the path and a zero byte."""
LIMIT_S = 10
INSTALLED = "site-packages/"
"""A part of the path of installed packages."""


def git(folder: Path, *words: str, limit_s: float = LIMIT_S) -> bytes | None:
    """Return the output of a git command; None if the command fails.

    Raises:
        OSError: git is not installed.
        subprocess.SubprocessError: The command took longer than `limit_s` seconds.
    """
    process = subprocess.run(["git", *words], cwd=folder, capture_output=True, timeout=limit_s)
    return process.stdout if process.returncode == 0 else None


def commit_of(root: Path) -> str:
    """Return the commit of a folder, with "+" if the repository has changed or untracked files.

    The result is "" without git or a commit, or if git takes longer than `LIMIT_S`.
    """
    try:
        head, changed = git(root, "rev-parse", "HEAD"), git(root, "status", "--porcelain")
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.decode().strip() + ("+" if changed else "") if head is not None else ""


def digest_of_changes(project: Project) -> str | None:
    """Return a digest of the uncommitted changes, except evidence; "" if there are none, None if git fails.

    Changes are the tracked files that `git status` lists, and the untracked files that are source code.
    """
    try:
        top, status = git(project.root, "rev-parse", "--show-toplevel"), git(project.root, *STATUS)
        if top is None or status is None:
            return None
        folder = Path(os.fsdecode(top).rstrip("\n"))
        entries = [(entry[:2], entry[3:]) for entry in os.fsdecode(status).split("\0") if entry]
        names = [name for state, name in entries if state != "??" or name.endswith(SOURCES)]
        changed = {name: _digest(folder / name) for name in names if not _is_evidence(project, folder / name)}
    except (OSError, subprocess.SubprocessError):
        return None
    return digest_data(changed) if changed else ""


def digests(project: Project, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the named files that exist, by path below the root.

    Evidence is left out. Installed packages are left out too: their paths may differ between machines.
    """
    paths = {name: project.root / name for name in sorted(set(names)) if INSTALLED not in name}
    return {name: _digest(path) for name, path in paths.items() if path.is_file() and not _is_evidence(project, path)}


def _is_evidence(project: Project, path: Path) -> bool:
    """Return whether a file is recorded evidence, which is merged result by result."""
    return path.is_relative_to(project.evidence.resolve())


def _digest(path: Path) -> str:
    """Return the digest of the bytes of a file; "" if it was removed."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
