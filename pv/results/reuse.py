"""Keeps the results of trials, for later validations with the same tasks, while no file that they read has changed."""

import hashlib
import json
import platform
import sqlite3
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cattrs.preconf.json import make_converter

from pv.engines.trial import Trial
from pv.results.own_code import PACKAGE, ROOMS
from pv.source.digest import digest_data
from pv.source.project import Project

FILE = ".pv_cache/trials.sqlite3"
DAYS = 30
"""A result is reused for so many days; then even what no digest covers, such as an environment variable, is seen."""
CONVERTER = make_converter()


class Reuse:
    """The kept results of one project. If their file cannot be used, nothing is kept, and `problem` says why."""

    def __init__(self, project: Project) -> None:
        self.count, self.problem = 0, ""
        self._root = project.root
        self._started = time.time_ns()
        self._digests: dict[tuple[str, int, int, int], str] = {}
        self._environment = _environment()
        self._kept = self._opened(project.root / FILE)

    def key(self, task: Any) -> str:
        """Return the key of the result of a task, JSON data, in this environment."""
        return digest_data([self._environment, task])

    def recalled(self, key: str) -> Trial | None:
        """Return a result of an earlier validation whose files are unchanged; None if there is none."""
        for files, digest, content in self._run("SELECT files, digest, trial FROM trials WHERE task = ?", key):
            if self._digest(json.loads(files)) == digest:
                self.count += 1
                return CONVERTER.loads(content, Trial)
        return None

    def keep(self, key: str, found: Trial, files: Iterable[str]) -> None:
        """Keep a result that depends on `files`, paths below the root, unless one of them changed meanwhile."""
        names = sorted({*found.files, *files})
        if any(map(self._is_new, names)):
            return
        row = (key, json.dumps(names), self._digest(names), CONVERTER.dumps(found), _today())
        self._run("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?)", *row)

    def close(self) -> None:
        """Write what was kept."""
        if self._kept is not None:
            self._kept.close()

    def _opened(self, path: Path) -> sqlite3.Connection | None:
        try:
            path.parent.mkdir(exist_ok=True)
            (path.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS trials (task PRIMARY KEY, files, digest, trial, day INTEGER)"
            )
            connection.execute("DELETE FROM trials WHERE day < ?", (_today() - DAYS,))
        except (OSError, sqlite3.Error) as error:
            self.problem = _problem(path, error)
            return None
        return connection

    def _run(self, statement: str, *values: Any) -> list[Any]:
        if self._kept is None:
            return []
        try:
            return self._kept.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self.close()
            self._kept, self.problem = None, _problem(self._root / FILE, error)
            return []

    def _digest(self, names: Iterable[str]) -> str:
        return digest_data({name: self._of_file(name) for name in names})

    def _of_file(self, name: str) -> str:
        """Return the digest of the bytes of a file, since coverage holds line numbers; "" if there is no file."""
        try:
            state = (self._root / name).stat()
            key = (name, state.st_mtime_ns, state.st_ctime_ns, state.st_size)
            if key not in self._digests:
                self._digests[key] = _sha(self._root / name)
        except OSError:
            return ""
        return self._digests[key]

    def _is_new(self, name: str) -> bool:
        with suppress(OSError):
            path = self._root / name
            states = (path.stat(), path.lstat())  # a file that is moved here keeps its time of modification
            return any(max(state.st_mtime_ns, state.st_ctime_ns) >= self._started for state in states)
        return False


def _problem(path: Path, error: Exception) -> str:
    damaged = type(error) is sqlite3.DatabaseError  # its subclasses are about locks, space and permissions
    return f"no result is reused or kept: {path}: {error}" + ("; delete the file" if damaged else "")


def _environment() -> list[str]:
    """Return what every result depends on: Python, the system, the installed packages, and what decides in pv."""
    packages = sorted({f"{each.metadata['Name']} {each.version}" for each in distributions()})
    deciding = (path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py")))
    source = [_sha(path) for path in deciding]
    return [platform.python_version(), platform.platform(), *packages, *source]


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _today() -> int:
    return int(time.time() // 86_400)
