"""Keeps the results of trials for later validations, several states of each, in a file of the project."""

import json
import sqlite3
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cattrs.preconf.json import make_converter

from pv.engines.trial import Trial
from pv.results.reuse.dependencies import EVERYTHING, Source, dependencies
from pv.results.reuse.environment import differences, environment
from pv.results.reuse.opened import Opened
from pv.results.reuse.tree import Tree
from pv.source.digest import digest_data
from pv.source.pieces import Pieces
from pv.source.project import Project

FILE = ".pv_cache/results.sqlite3"
DAYS = 30
"""A result is reused for so many days after it was measured."""
MOST_STATES = 8
"""Number of states in which a result is kept, as those of branches; the least recently used one is dropped."""
MOST_BYTES = 256 << 20
CONVERTER = make_converter()
VERSION = 2
"""The version of the tables: a file of another version is emptied."""
FORGET = "".join(f"DROP TABLE IF EXISTS {name};" for name in ("results", "environments", "reports", "pieces"))
TABLES = """
CREATE TABLE IF NOT EXISTS results
    (task, state, claim, environment, depends, trial, measured INTEGER, used INTEGER, PRIMARY KEY (task, state));
CREATE TABLE IF NOT EXISTS environments (digest PRIMARY KEY, description);
CREATE TABLE IF NOT EXISTS reports (key PRIMARY KEY, report, measured INTEGER);
CREATE TABLE IF NOT EXISTS pieces (source PRIMARY KEY, pieces);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a kept result: its task, when it was measured, and what has changed since."""

    task: str
    measured: int
    environment: list[str]
    changed: list[str]


class Reuse:
    """The kept results of one project. If their file cannot be used, nothing is kept, and `problem` says why.

    watch: whether results will be kept, which depend on the files that are opened from now on.
    """

    def __init__(self, project: Project, *, watch: bool = True) -> None:
        self.count, self.problem = 0, ""
        self._root = project.root
        self._started = time.time_ns()
        self._environment = environment()
        self._digest = digest_data(self._environment)
        self._kept = self._connected(project.root / FILE)
        self._tree = Tree(project, self._pieces)
        self._tree.digest(EVERYTHING)  # it opens every file, so before they are watched
        self._opened = Opened(project) if watch else None

    def key(self, task: Any) -> str:
        """Return the key of the result of a task, JSON data, in this environment."""
        return digest_data([self._digest, task])

    def recalled(self, key: str) -> Trial | None:
        """Return a result of an earlier validation whose dependencies are unchanged; None if there is none."""
        query = "SELECT state, depends, trial FROM results WHERE task = ? ORDER BY used DESC"
        for state, depends, trial in self._run(query, key):
            if not self._changed(_loaded(depends)):
                self.count += 1
                self._run("UPDATE results SET used = ? WHERE task = ? AND state = ?", _now(), key, state)
                return CONVERTER.loads(zlib.decompress(trial), Trial)
        return None

    def newest(self, claim: str) -> "Kept | None":
        """Return what is kept of the newest result of a claim on its own subject; None if there is none."""
        query = "SELECT task, environment, depends, measured FROM results WHERE claim = ? ORDER BY used DESC LIMIT 1"
        for task, digest, depends, measured in self._run(query, claim):
            then = self._run("SELECT description FROM environments WHERE digest = ?", digest)
            described = json.loads(then[0][0]) if then else []
            changed = self._changed(_loaded(depends))
            return Kept(
                task=task, measured=measured, environment=differences(described, self._environment), changed=changed
            )
        return None

    def keep(self, key: str, claim: str, found: Trial, source: Source) -> None:
        """Keep a result, unless a file that it depends on changed meanwhile. claim: "" for a result on a mutant."""
        names = dependencies(self._tree, source, self._opened.names() if self._opened is not None else ())
        if any(self._is_new(name) for name in names):
            return
        depends = {name: self._tree.digest(name) for name in sorted(names)}
        trial = zlib.compress(CONVERTER.dumps(found).encode())
        listed = zlib.compress(json.dumps(depends).encode())
        row = (key, digest_data(depends), claim, self._digest, listed, trial, _now(), _now())
        self._run("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        self._run("INSERT OR IGNORE INTO environments VALUES (?, ?)", self._digest, json.dumps(self._environment))
        oldest = "SELECT state FROM results WHERE task = ? ORDER BY used DESC LIMIT -1 OFFSET ?"
        self._run(f"DELETE FROM results WHERE task = ? AND state IN ({oldest})", key, key, MOST_STATES)

    def key_of_all(self, task: Any) -> str:
        """Return the key of what depends on every file of the project and its evidence."""
        return digest_data([self._digest, task, self._tree.digest(EVERYTHING), self._tree.evidence()])

    def report(self, key: str) -> str | None:
        """Return a kept report; None if there is none."""
        found = self._run("SELECT report FROM reports WHERE key = ?", key)
        return zlib.decompress(found[0][0]).decode() if found else None

    def keep_report(self, key: str, text: str) -> None:
        """Keep a report beside the last ones."""
        self._run("INSERT OR REPLACE INTO reports VALUES (?, ?, ?)", key, zlib.compress(text.encode()), _now())
        newest = "SELECT key FROM reports ORDER BY measured DESC LIMIT ?"
        self._run(f"DELETE FROM reports WHERE key NOT IN ({newest})", MOST_STATES)

    def unchanged_since(self, moment: int) -> bool:
        """Return whether no file of the project was changed after a time in nanoseconds."""
        return self._tree.newest() < moment

    def close(self) -> None:
        """Write what was kept."""
        if self._opened is not None:
            self._opened.close()
        if self._kept is not None:
            self._kept.close()

    def _changed(self, depends: dict[str, str]) -> list[str]:
        return [name for name, digest in depends.items() if self._tree.digest(name) != digest]

    def _connected(self, path: Path) -> sqlite3.Connection | None:
        try:
            path.parent.mkdir(exist_ok=True)
            (path.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if connection.execute("PRAGMA user_version").fetchone() != (VERSION,):
                connection.executescript(f"{FORGET} PRAGMA user_version = {VERSION};")
            connection.executescript(TABLES)
            for table in ("results", "reports"):
                connection.execute(f"DELETE FROM {table} WHERE measured < ?", (_now() - DAYS * 86_400,))
            if path.stat().st_size > MOST_BYTES:
                connection.executescript(f"{FORGET} VACUUM; {TABLES}")
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
            self._kept.close()
            self._kept, self.problem = None, _problem(self._root / FILE, error)
            return []

    def _pieces(self, source: str, make: Callable[[], Pieces]) -> Pieces:
        for (found,) in self._run("SELECT pieces FROM pieces WHERE source = ?", source):
            return CONVERTER.loads(found, Pieces)
        made = make()
        self._run("INSERT OR REPLACE INTO pieces VALUES (?, ?)", source, CONVERTER.dumps(made))
        return made

    def _is_new(self, dependency: str) -> bool:
        """Return whether a file changed since this validation began: the worker may have read it before or after."""
        if dependency == EVERYTHING:
            return self._tree.newest() >= self._started
        kind, _, rest = dependency.partition(" ")
        if kind not in ("import", "file", "function"):
            return False
        with suppress(OSError):
            path = self._root / (rest.rpartition(":")[0] if kind == "function" else rest)
            states = (path.stat(), path.lstat())  # a file that is moved here keeps its time of modification
            return any(max(state.st_mtime_ns, state.st_ctime_ns) >= self._started for state in states)
        return False


def _loaded(depends: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(zlib.decompress(depends))
    return found


def _problem(path: Path, error: Exception) -> str:
    damaged = type(error) is sqlite3.DatabaseError  # its subclasses are about locks, space and permissions
    return f"no result is reused or kept: {path}: {error}" + ("; delete the file" if damaged else "")


def _now() -> int:
    return int(time.time())
