"""The tables of the cache, in an SQLite file of the project."""

import json
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cattrs import BaseValidationError
from cattrs.preconf.json import make_converter

from pv.engines.trial import Trial
from pv.results.reuse.dependencies import EVERYTHING
from pv.source.pieces import Pieces

T = TypeVar("T")
D = TypeVar("D")
FILE = ".pv_cache/results.sqlite3"
DAYS = 30
"""Number of days for which a result is reused after it was measured."""
MOST_BYTES = 256 << 20
"""A larger file is emptied when it is opened."""
CONVERTER = make_converter()
VERSION = 7
"""The version of the tables, in the header of the file. The tables of another version are dropped without a message."""
NAMES = ("results", "environments", "reports", "pieces", "seen", "failed")
DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in NAMES)
# results: one row for each key (task) and state of its dependencies. environment is a key of environments; depends and
# trial are compressed JSON; measured is in seconds, used in nanoseconds since the epoch.
# reports: reports of whole validations, each for all results that were used between since and used.
# pieces: the parsed modules, by digest of their source, so that unchanged modules are not parsed again.
# seen: dependencies that may be outside the project, on which reports depend too.
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

    If the file cannot be used, the tables are empty and `problem` says why. Several processes may use the file at once:
    every statement is a transaction of its own, and a killed process leaves the rows that it has committed.

    Args:
        root: The folder of the project; the file is created below it.
    """

    def __init__(self, root: Path) -> None:
        self.problem = ""
        self._path = root / FILE
        self._connection = self._connect()

    def run(self, statement: str, *values: Any) -> list[Any]:
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

    def depends(self, data: bytes) -> dict[str, str]:
        """Return the dependencies of a result with their digests.

        A damaged row depends on everything with an impossible digest, so its result is never found.
        """
        return self._decode(data, lambda data: dict(json.loads(zlib.decompress(data))), {EVERYTHING: ""})

    def trial(self, data: bytes) -> Trial | None:
        """Return the trial of a result; None if the row is damaged."""
        return self._decode(data, lambda data: CONVERTER.loads(zlib.decompress(data), Trial), None)

    def report(self, data: bytes) -> str | None:
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
        """Open the file, and drop what is of another version, too old or too large."""
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
            if self._path.stat().st_size > MOST_BYTES:
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


def packed(value: Trial | dict[str, str] | str) -> bytes:
    """Return a trial, the dependencies of a result, or the text of a report in the form of a column."""
    text = value if isinstance(value, str) else CONVERTER.dumps(value)
    return zlib.compress(text.encode())
