"""Keeps the results of trials for later validations, several states of each, in a file of the project."""

import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Any, TypeVar

from cattrs import BaseValidationError
from cattrs.preconf.json import make_converter

from pv.engines.trial import Trial
from pv.results.reuse.dependencies import EVERYTHING, Source, dependencies
from pv.results.reuse.environment import differences, environment
from pv.results.reuse.opened import Opened
from pv.results.reuse.tree import MISSING, Tree
from pv.source.digest import digest_data
from pv.source.pieces import Pieces
from pv.source.project import Project

T = TypeVar("T")
D = TypeVar("D")
FILE = ".pv_cache/results.sqlite3"
DAYS = 30
"""A result is reused for so many days after it was measured."""
MOST_STATES = 8
"""Number of states in which a result is kept, as those of branches; the least recently used one is dropped."""
MOST_BYTES = 256 << 20
CONVERTER = make_converter()
VERSION = 6
"""The version of the tables: a file of another version is emptied."""
NAMES = ("results", "environments", "reports", "pieces", "seen", "failed")
FORGET = "".join(f"DROP TABLE IF EXISTS {name};" for name in NAMES)
TABLES = """
CREATE TABLE IF NOT EXISTS results
    (task, state, claim, environment, depends, trial, measured INTEGER, used INTEGER, PRIMARY KEY (task, state));
CREATE INDEX IF NOT EXISTS results_by_claim ON results (claim, used);
CREATE INDEX IF NOT EXISTS results_by_use ON results (used);
CREATE TABLE IF NOT EXISTS environments (digest PRIMARY KEY, description);
CREATE TABLE IF NOT EXISTS reports (key PRIMARY KEY, report, measured INTEGER, since INTEGER, used INTEGER);
CREATE TABLE IF NOT EXISTS pieces (source PRIMARY KEY, pieces);
CREATE TABLE IF NOT EXISTS seen (dependency PRIMARY KEY, measured INTEGER);
CREATE TABLE IF NOT EXISTS failed (claim PRIMARY KEY);
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

    watch: whether results will be kept, which depend on the files that are opened from now on. elsewhere: how this
    environment differs from that of the newest result; nothing if there are results of this one.
    """

    def __init__(self, project: Project, *, watch: bool = True) -> None:
        self.count, self.problem = 0, ""
        self._root = project.root
        self._started = time.time_ns()
        self._environment = environment()
        self._digest = digest_data(self._environment)
        self._noted = set[str]()
        self._kept = self._connected(project.root / FILE)
        self.elsewhere = self._elsewhere()
        self._tree = Tree(project, self._pieces)
        if watch:
            self._tree.digest(EVERYTHING)  # it opens every file, so before they are watched
        self._opened = Opened(project) if watch else None

    def key(self, task: Any) -> str:
        """Return the key of the result of a task, JSON data, in this environment."""
        return digest_data([self._digest, task])

    def recalled(self, key: str) -> Trial | None:
        """Return a result of an earlier validation whose dependencies are unchanged; None if there is none."""
        query = "SELECT state, depends, trial FROM results WHERE task = ? ORDER BY used DESC, rowid DESC"
        for state, depends, trial in self._run(query, key):
            if self._changed(self._decoded(depends, _depends, {EVERYTHING: ""})):
                continue
            if (found := self._decoded(trial, _trial, None)) is not None:
                self.count += 1
                self._run("UPDATE results SET used = ? WHERE task = ? AND state = ?", time.time_ns(), key, state)
                return found
        return None

    def _elsewhere(self) -> list[str]:
        query = "SELECT environment FROM results ORDER BY environment = ? DESC, used DESC LIMIT 1"
        found = self._run(query, self._digest)
        return differences(self._described(found[0][0]), self._environment) if found else []

    def newest(self, claim: str) -> "Kept | None":
        """Return what is kept of the newest result of a claim on its own subject; None if there is none."""
        columns = "task, environment, depends, measured"
        query = f"SELECT {columns} FROM results WHERE claim = ? ORDER BY used DESC, rowid DESC LIMIT 1"
        for task, digest, depends, measured in self._run(query, claim):
            others = differences(self._described(digest), self._environment)
            changed = self._changed(self._decoded(depends, _depends, {EVERYTHING: ""}))
            return Kept(task=task, measured=measured, environment=others, changed=changed)
        return None

    def _described(self, digest: str) -> list[str]:
        """Return the description of an environment in which results were measured."""
        found = self._run("SELECT description FROM environments WHERE digest = ?", digest)
        described: list[str] = json.loads(found[0][0]) if found else []
        return described

    def note(self, claim: str, *, failed: bool) -> None:
        """Note whether a claim failed. It decides nothing but the order of a later validation."""
        statement = "INSERT OR IGNORE INTO failed VALUES (?)" if failed else "DELETE FROM failed WHERE claim = ?"
        self._run(statement, claim)

    def order(self, claim: str) -> tuple[int, float]:
        """Return the place of a claim in a search for the first failure.

        What failed last comes first, then what executes a changed function; of these the shortest.
        """
        query = "SELECT depends, trial FROM results WHERE claim = ? ORDER BY used DESC, rowid DESC LIMIT 1"
        executes, cpu_s = False, 0.0
        for depends, trial in self._run(query, claim):
            changed = self._changed(self._decoded(depends, _depends, {EVERYTHING: ""}))
            executes = any(name.startswith("function ") for name in changed)
            cpu_s = self._decoded(trial, lambda kept: _trial(kept).cpu_s, 0.0)
        failed = self._run("SELECT 1 FROM failed WHERE claim = ?", claim)
        return 0 if failed else 1 if executes else 2, cpu_s

    def begin(self, task: object) -> None:
        """Note that a worker has just begun a task."""
        if self._opened is not None:
            self._opened.begin(task)

    def end(self, task: object) -> int:
        """Note that the task has ended, and return the moment of its beginning, 0 if it is unknown."""
        return self._opened.end(task) if self._opened is not None else 0

    def keep(self, key: str, claim: str, found: Trial, source: Source, since: int = 0) -> None:
        """Keep a result, unless a file that it depends on changed meanwhile.

        claim: "" for a result on a mutant. since: the moment at which the first of its tasks began.
        """
        names = dependencies(self._tree, source, self._opened.names(since) if self._opened is not None else ())
        depends = {name: self._tree.digest(name) for name in sorted(names)}
        if self._any_is_new(depends, self._started) or any(_is_lost(*each) for each in depends.items()):
            return
        trial = zlib.compress(CONVERTER.dumps(found).encode())
        listed = zlib.compress(json.dumps(depends).encode())
        row = (key, digest_data(depends), claim, self._digest, listed, trial, _now(), time.time_ns())
        self._run("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        self._run("INSERT OR IGNORE INTO environments VALUES (?, ?)", self._digest, json.dumps(self._environment))
        for name in depends:
            if name.startswith(("file ", "opened ", "entry ", "listed ")) and name not in self._noted:
                self._noted.add(name)
                self._run("INSERT OR REPLACE INTO seen VALUES (?, ?)", name, _now())
        oldest = "SELECT state FROM results WHERE task = ? ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?"
        self._run(f"DELETE FROM results WHERE task = ? AND state IN ({oldest})", key, key, MOST_STATES)

    def key_of_all(self, task: Any) -> str:
        """Return the key of what depends on every file of the project and its evidence."""
        return digest_data([self._digest, task, self._tree.digest(EVERYTHING), self._tree.evidence()])

    def report(self, key: str) -> str | None:
        """Return a kept report, whose results count as used now; None if there is none."""
        key = self._with_seen(key)
        for report, since, used in self._run("SELECT report, since, used FROM reports WHERE key = ?", key):
            now = time.time_ns()
            self._run("UPDATE results SET used = ? WHERE used BETWEEN ? AND ?", now, since, used)
            self._run("UPDATE reports SET since = ?, used = ? WHERE key = ?", now, now, key)
            return self._decoded(report, lambda kept: zlib.decompress(kept).decode(), None)
        return None

    def keep_report(self, key: str, text: str, since: int) -> None:
        """Keep a report beside the last ones. since: the moment at which its validation began, in nanoseconds."""
        row = (self._with_seen(key), zlib.compress(text.encode()), _now(), since, time.time_ns())
        self._run("INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?)", *row)
        newest = "SELECT key FROM reports ORDER BY used DESC LIMIT ?"
        self._run(f"DELETE FROM reports WHERE key NOT IN ({newest})", MOST_STATES)

    def unchanged_since(self, moment: int) -> bool:
        """Return whether no file of the project was changed after a time in nanoseconds."""
        return self._tree.newest() < moment and not self._any_is_new(self._extra_dependencies(), moment)

    def close(self) -> None:
        """Write what was kept."""
        if self._opened is not None:
            self._opened.close()
        if self._kept is not None:
            self._kept.close()

    def _extra_dependencies(self) -> list[str]:
        """Return what any result depends on of which the state of all files may not tell."""
        return [name for (name,) in self._run("SELECT dependency FROM seen ORDER BY dependency")]

    def _with_seen(self, key: str) -> str:
        return digest_data([key, {name: self._tree.digest(name) for name in self._extra_dependencies()}])

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
            for table in ("results", "reports", "seen"):
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
            if (known := self._decoded(found, lambda kept: CONVERTER.loads(kept, Pieces), None)) is not None:
                return known
        made = make()
        self._run("INSERT OR REPLACE INTO pieces VALUES (?, ?)", source, CONVERTER.dumps(made))
        return made

    def _decoded(self, kept: bytes, decode: Callable[[bytes], T], default: D) -> "T | D":
        """Return what is kept, or the default if it is damaged."""
        try:
            return decode(kept)
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, BaseValidationError) as error:
            self.problem = f"a kept result is not reused: {self._root / FILE} is damaged ({error}); delete the file"
            return default

    def _any_is_new(self, dependencies: Iterable[str], moment: int) -> bool:
        """Return whether a file changed since a validation began: the worker may have read it before or after."""
        names = {*dependencies}
        if EVERYTHING in names and self._tree.newest() >= moment:
            return True
        return any(_changed_at(self._root / place) >= moment for place in {*map(self._place, names)} if place)

    def _place(self, dependency: str) -> str:
        """Return the file whose change may change a dependency, "" if there is no such file."""
        kind, _, rest = dependency.partition(" ")
        if kind == "function":
            return rest.rpartition(":")[0]
        if kind == "module":
            return self._tree.digest(dependency)
        return rest if kind in ("import", "file", "opened", "entry") else ""


def _changed_at(path: Path) -> int:
    """Return when a file changed, or was moved here with its time of modification; 0 for a folder, and for nothing."""
    with suppress(OSError):
        states = (path.stat(), path.lstat())
        return max((max(s.st_mtime_ns, s.st_ctime_ns) for s in states if not S_ISDIR(s.st_mode)), default=0)
    return 0


def _is_lost(dependency: str, digest: str) -> bool:
    """Return whether a file that a worker read has gone since."""
    return digest == MISSING and dependency.startswith(("import ", "file ", "opened "))


def _depends(kept: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(zlib.decompress(kept))
    return found


def _trial(kept: bytes) -> Trial:
    return CONVERTER.loads(zlib.decompress(kept), Trial)


def _problem(path: Path, error: Exception) -> str:
    damaged = type(error) is sqlite3.DatabaseError  # its subclasses are about locks, space and permissions
    return f"no result is reused or kept: {path}: {error}" + ("; delete the file" if damaged else "")


def _now() -> int:
    return int(time.time())
