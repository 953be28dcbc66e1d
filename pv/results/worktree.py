"""Compute digests of the uncommitted changes of a working tree, so that results of different code are not merged."""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from pv.source.digest import digest_data
from pv.source.project import Project

SOURCES = (".py", ".yaml", ".yml", ".toml")
"""Suffixes of the untracked files that are source code; a validation itself leaves other files, such as reports."""
STATUS = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
LIMIT_S = 10
INSTALLED = "site-packages/"


def edits(project: Project) -> str | None:
    """Return a digest of the changed files, without evidence; "" if there is none, None without git."""
    try:
        top = Path(_git(project.root, "rev-parse", "--show-toplevel").rstrip("\n"))
        names = [name for name in _changed(_git(project.root, *STATUS)) if _counts(project, top / name)]
        return digest_data({name: _digest(top / name) for name in names}) if names else ""
    except (OSError, subprocess.SubprocessError):
        return None


def digests(project: Project, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the existing files, by path below the root.

    Evidence is left out, and so are installed packages: two machines may have them at different paths.
    """
    paths = {name: project.root / name for name in sorted(set(names)) if INSTALLED not in name}
    return {name: _digest(path) for name, path in paths.items() if path.is_file() and _counts(project, path)}


def _git(folder: Path, *words: str) -> str:
    process = subprocess.run(["git", *words], cwd=folder, capture_output=True, timeout=LIMIT_S, check=True)
    return process.stdout.decode("utf-8", "surrogateescape")


def _changed(status: str) -> Iterator[str]:
    """Yield the tracked files that `git status` lists, and the untracked ones that are source."""
    for entry in filter(None, status.split("\0")):
        state, name = entry[:2], entry[3:]
        if state != "??" or name.endswith(SOURCES):
            yield name


def _counts(project: Project, path: Path) -> bool:
    """Return whether a file affects a trial. Evidence does not: it is merged result by result."""
    return not path.is_relative_to(project.evidence.resolve())


def _digest(path: Path) -> str:
    """Return the digest of the bytes of a file; "" if it was removed."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
