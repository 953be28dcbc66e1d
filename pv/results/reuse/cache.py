"""The cache of trials in an SQLite file of the project. A result is valid while its dependencies are unchanged."""

import json
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cattrs import BaseValidationError
from cattrs.preconf.json import make_converter

from pv.engines.trial import Trial
from pv.results.reuse.dependencies import EVERYTHING, Source, Tree, changed_since, dependencies, is_lost
from pv.results.reuse.environment import differences, environment
from pv.results.reuse.opened_files import OpenedFilesLog
from pv.source.digest import digest_data
from pv.source.pieces import Pieces
from pv.source.project import Project

T = TypeVar("T")
D = TypeVar("D")
FILE = ".pv_cache/results.sqlite3"
DAYS = 30
"""Number of days for which a result is reused after it was measured."""
MAX_BYTES = 256 << 20
"""A larger file is emptied when it is opened."""
CONVERTER = make_converter()
VERSION = 7
"""The version of the tables, in the header of the file. The tables of another version are dropped without a message."""
TABLE_NAMES = ("results", "environments", "reports", "pieces", "seen", "failed")
DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in TABLE_NAMES)
# results: one row for each key (task) and state of its dependencies. environment is a key of environments; depends and
# trial are compressed JSON; measured is in seconds and used in nanoseconds, both since the epoch.
# reports: reports of whole validations; the results with a time of use between since and used belong to the report.
# pieces: the parsed modules, by digest of their source, so that unchanged modules are not parsed again.
# seen: dependencies of any result that the digest of the project may not cover; every report depends on them.
# failed: the claims that failed last time.
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


class Tables:
    """The tables of the cache of one project, in an SQLite file.

    If the file cannot be used, the tables are empty and `problem` is the reason. If a row is damaged, `problem` says so
    after the row was read. Several processes may use the file: every statement is a transaction of its own, and a
    killed process leaves the rows that it has committed.

    Args:
        root: The folder of the project; the file is created below it.
    """

    def __init__(self, root: Path) -> None:
        self.problem = ""
        self._path = root / FILE
        self._connection = self._connect()

    def run(self, statement: str, *values: object) -> list[Any]:
        """Return the rows of an SQL statement; none if the file cannot be used."""
        if self._connection is None:
            return []
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._connection.close()
            self._connection = None
            self._record_problem(error)
            return []

    def decode_dependencies(self, data: bytes) -> dict[str, str]:
        """Return the dependencies of a result with their digests; for a damaged row, a digest that never matches."""
        return self._decode(data, lambda data: dict(json.loads(zlib.decompress(data))), {EVERYTHING: ""})

    def decode_trial(self, data: bytes) -> Trial | None:
        """Return the trial of a result; None if the row is damaged."""
        return self._decode(data, lambda data: CONVERTER.loads(zlib.decompress(data), Trial), None)

    def decode_report(self, data: bytes) -> str | None:
        """Return the text of a report; None if the row is damaged."""
        return self._decode(data, lambda data: zlib.decompress(data).decode(), None)

    def pieces(self, source: str, parse: Callable[[], Pieces]) -> Pieces:
        """Return the pieces of a source.

        Args:
            source: The digest of the source.
            parse: Returns the pieces if they are not stored.
        """
        for (data,) in self.run("SELECT pieces FROM pieces WHERE source = ?", source):
            if (stored := self._decode(data, lambda data: CONVERTER.loads(data, Pieces), None)) is not None:
                return stored
        pieces = parse()
        self.run("INSERT OR REPLACE INTO pieces VALUES (?, ?)", source, CONVERTER.dumps(pieces))
        return pieces

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()

    def _decode(self, data: bytes, decode: Callable[[bytes], T], default: D) -> "T | D":
        try:
            return decode(data)
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, BaseValidationError) as error:
            self.problem = f"a stored result is not reused: {self._path} is damaged ({error}); delete the file"
            return default

    def _connect(self) -> sqlite3.Connection | None:
        """Open the file. Drop tables of another version, rows that are too old, and everything if it is too large."""
        try:
            self._path.parent.mkdir(exist_ok=True)
            (self._path.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            connection = sqlite3.connect(self._path, isolation_level=None)
            # Readers do not wait for writers. A loss of power may undo the last results, which are then measured again.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if connection.execute("PRAGMA user_version").fetchone() != (VERSION,):
                connection.executescript(f"{DROP} PRAGMA user_version = {VERSION};")
                # Versions up to 6 kept killed mutants in files of their own.
                shutil.rmtree(self._path.parent / "mutants", ignore_errors=True)
            connection.executescript(TABLES)
            for table in ("results", "reports", "seen"):
                connection.execute(f"DELETE FROM {table} WHERE measured < ?", (int(time.time()) - DAYS * 86_400,))
            if self._path.stat().st_size > MAX_BYTES:
                connection.executescript(f"{DROP} VACUUM; {TABLES}")
        except (OSError, sqlite3.Error) as error:
            self._record_problem(error)
            return None
        return connection

    def _record_problem(self, error: Exception) -> None:
        # Subclasses of DatabaseError are about locks, space and permissions: deleting the file does not help then.
        damaged = type(error) is sqlite3.DatabaseError
        hint = "; delete the file" if damaged else ""
        self.problem = f"no result is reused or stored: {self._path}: {error}{hint}"


def compress(value: Trial | dict[str, str] | str) -> bytes:
    """Return a trial, the dependencies of a result, or the text of a report in the compressed form of the tables."""
    text = value if isinstance(value, str) else CONVERTER.dumps(value)
    return zlib.compress(text.encode())


MAX_STATES = 8
"""Maximum number of results of one key, each for another state of the files, such as another git branch.

It is also the maximum number of reports.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """The last used result of a claim in the cache.

    Attributes:
        task: The key of the result.
        measured: The time of its measurement, in seconds since the epoch.
        environment: The names of the parts in which this environment differs from the environment of the result.
        changed: The dependencies of the result that have changed since.
    """

    task: str
    measured: int
    environment: list[str]
    changed: list[str]


class ResultCache:
    """The cached trials and reports of one project, in `.pv_cache/`.

    A result is stored under a key (the task and the environment), with the digests of its dependencies (code, data,
    folders). A lookup succeeds if the key is stored and the digest of every dependency is unchanged.

    If the file of the cache cannot be used, nothing is stored or returned, and `problem` is the reason: a validation
    without a cache is slower, but has the same results.

    Args:
        project: The project whose results are stored.
        watch: Record file accesses from now on; required if results will be stored.

    Attributes:
        hits: The number of lookups that succeeded.
        environment_differences: The parts in which this environment differed, when the cache was opened, from the
            environment of the last used result; empty if a result of this environment was stored, or no result at all.
    """

    def __init__(self, project: Project, *, watch: bool = True) -> None:
        self.hits = 0
        self._started = time.time_ns()
        self._environment = environment()
        self._digest = digest_data(self._environment)
        self._recorded_names = set[str]()
        self._tables = Tables(project.root)
        self.environment_differences = self._environment_differences()
        self._tree = Tree(project, self._tables.pieces)
        if watch:
            # This opens every file of the project, so do it before the log of opened files begins.
            self._tree.digest(EVERYTHING)
        self._opened_files = OpenedFilesLog(project) if watch else None

    @property
    def problem(self) -> str:
        """Return why results cannot be stored or found, or why a stored row was not used; "" if there is no problem."""
        return self._tables.problem

    def key(self, task: object) -> str:
        """Return the key of the result of a task, which is JSON data, in this environment.

        Files are not part of the key: their digests are compared one by one, so that a result survives changes of
        files that it does not depend on.
        """
        return digest_data([self._digest, task])

    def lookup(self, key: str, accept: Callable[[Trial], bool] = lambda _: True) -> Trial | None:
        """Return a stored result whose dependencies are unchanged; None if there is none.

        Args:
            key: The key of the result.
            accept: Decides whether a result can be used. Commands store different results under one key: `pv mutate`
                also stores timeouts, which a validation measures again.
        """
        query = "SELECT state, depends, trial FROM results WHERE task = ? ORDER BY used DESC, rowid DESC"
        for state, depends, data in self._tables.run(query, key):
            if self._changed(depends):
                continue
            if (trial := self._tables.decode_trial(data)) is not None and accept(trial):
                self.hits += 1
                self._tables.run("UPDATE results SET used = ? WHERE task = ? AND state = ?", time.time_ns(), key, state)
                return trial
        return None

    def store(self, key: str, claim: str, trial: Trial, source: Source, since: int = 0) -> None:
        """Store a result, unless a file that it depends on changed since this cache was opened, or no longer exists.

        The worker may have read a changed file before or after the change.

        Args:
            key: The key of the result.
            claim: The id of the claim; "" for a result on a mutant.
            trial: The result.
            source: The trials and the code that the result comes from.
            since: The return value of `end` for the first task of the result; ignore files that were opened earlier.
        """
        opened = self._opened_files.opened_since(since) if self._opened_files is not None else ()
        names = dependencies(self._tree, source, opened)
        depends = {name: self._tree.digest(name) for name in sorted(names)}
        if changed_since(self._tree, depends, self._started) or is_lost(depends):
            return
        # The digest of the dependencies is part of the primary key, so that results of several branches are kept.
        row = (key, digest_data(depends), claim, self._digest, compress(depends), compress(trial))
        insert = "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        self._tables.run(insert, *row, _now(), time.time_ns())
        self._tables.run(
            "INSERT OR IGNORE INTO environments VALUES (?, ?)", self._digest, json.dumps(self._environment)
        )
        # These dependencies may be outside the root or in caches, which the digest of the project does not cover.
        for name in depends:
            if name.startswith(("file ", "opened ", "entry ", "listed ")) and name not in self._recorded_names:
                self._recorded_names.add(name)
                self._tables.run("INSERT OR REPLACE INTO seen VALUES (?, ?)", name, _now())
        # Delete all but the most recently used states.
        oldest = "SELECT state FROM results WHERE task = ? ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?"
        self._tables.run(f"DELETE FROM results WHERE task = ? AND state IN ({oldest})", key, key, MAX_STATES)

    def newest(self, claim: str) -> CacheEntry | None:
        """Return the last used result of a claim on the clean code; None if there is none.

        A result is used when it is stored, and when a lookup returns it or its report.
        """
        columns = "task, environment, depends, measured"
        query = f"SELECT {columns} FROM results WHERE claim = ? ORDER BY used DESC, rowid DESC LIMIT 1"
        for task, digest, depends, measured in self._tables.run(query, claim):
            other = differences(self._described(digest), self._environment)
            return CacheEntry(task=task, measured=measured, environment=other, changed=self._changed(depends))
        return None

    def record_outcome(self, claim: str, *, failed: bool) -> None:
        """Record whether a claim failed, for `priority`. The trial of a failure is not stored."""
        statement = "INSERT OR IGNORE INTO failed VALUES (?)" if failed else "DELETE FROM failed WHERE claim = ?"
        self._tables.run(statement, claim)

    def priority(self, claim: str) -> tuple[int, float]:
        """Return the sort key of a claim in a search for the first failure.

        Claims that failed last time come first (0), then claims that execute a changed function (1), then the rest (2).
        Within a group, the claim whose stored trial used the least CPU time comes first; a claim without a stored trial
        counts as 0 s.
        """
        query = "SELECT depends, trial FROM results WHERE claim = ? ORDER BY used DESC, rowid DESC LIMIT 1"
        executes_change, cpu_s = False, 0.0
        for depends, data in self._tables.run(query, claim):
            executes_change = any(name.startswith("function ") for name in self._changed(depends))
            cpu_s = trial.cpu_s if (trial := self._tables.decode_trial(data)) is not None else 0.0
        if self._tables.run("SELECT 1 FROM failed WHERE claim = ?", claim):
            return 0, cpu_s
        return (1 if executes_change else 2), cpu_s

    def begin(self, task: object) -> None:
        """Record that a worker has begun a task."""
        if self._opened_files is not None:
            self._opened_files.begin(task)

    def end(self, task: object) -> int:
        """Record that a task has ended, and return the moment at which the task began; 0 if that is unknown."""
        return self._opened_files.end(task) if self._opened_files is not None else 0

    def report_key(self, task: object) -> str:
        """Return the key of a report, which depends on every file of the project and on its recorded evidence."""
        return digest_data([self._digest, task, self._tree.digest(EVERYTHING), self._tree.evidence()])

    def lookup_report(self, key: str) -> str | None:
        """Return a stored report; None if there is none, or if its row is damaged."""
        key = self._with_outside(key)
        for report, since, used in self._tables.run("SELECT report, since, used FROM reports WHERE key = ?", key):
            now = time.time_ns()
            # The results of this report count as used too, so that `store` deletes other states first.
            self._tables.run("UPDATE results SET used = ? WHERE used BETWEEN ? AND ?", now, since, used)
            self._tables.run("UPDATE reports SET since = ?, used = ? WHERE key = ?", now, now, key)
            return self._tables.decode_report(report)
        return None

    def store_report(self, key: str, text: str, since: int) -> None:
        """Store a report, and drop the least recently used one if there are too many.

        Args:
            key: The return value of `report_key`.
            text: The report as JSON.
            since: The start of its validation, in nanoseconds since the epoch.
        """
        row = (self._with_outside(key), compress(text), _now(), since, time.time_ns())
        self._tables.run("INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?)", *row)
        newest = "SELECT key FROM reports ORDER BY used DESC LIMIT ?"
        self._tables.run(f"DELETE FROM reports WHERE key NOT IN ({newest})", MAX_STATES)

    def unchanged_since(self, moment_ns: int) -> bool:
        """Return whether no file that a report depends on changed after a time in nanoseconds since the epoch."""
        if self._tree.newest() >= moment_ns:
            return False
        return not changed_since(self._tree, self._outside_dependencies(), moment_ns)

    def close(self) -> None:
        """Stop the log of opened files and close the file of the cache."""
        if self._opened_files is not None:
            self._opened_files.close()
        self._tables.close()

    def _environment_differences(self) -> list[str]:
        # A result of this environment, if there is one, sorts before newer results of other environments.
        query = "SELECT environment FROM results ORDER BY environment = ? DESC, used DESC LIMIT 1"
        rows = self._tables.run(query, self._digest)
        return differences(self._described(rows[0][0]), self._environment) if rows else []

    def _described(self, digest: str) -> list[str]:
        """Return the description of an environment in which results were measured."""
        rows = self._tables.run("SELECT description FROM environments WHERE digest = ?", digest)
        described: list[str] = json.loads(rows[0][0]) if rows else []
        return described

    def _outside_dependencies(self) -> list[str]:
        """Return the dependencies of any result that the digest of the project may not cover."""
        return [name for (name,) in self._tables.run("SELECT dependency FROM seen ORDER BY dependency")]

    def _with_outside(self, key: str) -> str:
        """Return a key of a report that also depends on `_outside_dependencies`."""
        return digest_data([key, {name: self._tree.digest(name) for name in self._outside_dependencies()}])

    def _changed(self, depends: bytes) -> list[str]:
        """Return the dependencies of a stored result that have changed."""
        stored = self._tables.decode_dependencies(depends)
        return [name for name, digest in stored.items() if self._tree.digest(name) != digest]


def _now() -> int:
    return int(time.time())
