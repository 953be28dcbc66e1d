"""The tables of kept results, in a file of the project."""

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
"""A result is reused for so many days after it was measured."""
MOST_BYTES = 256 << 20
CONVERTER = make_converter()
VERSION = 7
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


class Tables:
    """The tables of one project. If their file cannot be used, they are empty, and `problem` says why."""

    def __init__(self, root: Path) -> None:
        self.problem = ""
        self._path = root / FILE
        self._connection = self._connected()

    def run(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of an SQL statement; none if the file cannot be used."""
        if self._connection is None:
            return []
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self._connection.close()
            self._connection = None
            self._note_unusable(error)
            return []

    def depends(self, kept: bytes) -> dict[str, str]:
        """Return what a result depends on, with digests; if the row is damaged, everything."""
        return self._decoded(kept, lambda kept: dict(json.loads(zlib.decompress(kept))), {EVERYTHING: ""})

    def trial(self, kept: bytes) -> Trial | None:
        """Return the trial of a result; None if the row is damaged."""
        return self._decoded(kept, lambda kept: CONVERTER.loads(zlib.decompress(kept), Trial), None)

    def report(self, kept: bytes) -> str | None:
        """Return the text of a report; None if the row is damaged."""
        return self._decoded(kept, lambda kept: zlib.decompress(kept).decode(), None)

    def pieces(self, source: str, make: Callable[[], Pieces]) -> Pieces:
        """Return the pieces of the source with a digest, made if they are not kept."""
        for (found,) in self.run("SELECT pieces FROM pieces WHERE source = ?", source):
            if (known := self._decoded(found, lambda kept: CONVERTER.loads(kept, Pieces), None)) is not None:
                return known
        made = make()
        self.run("INSERT OR REPLACE INTO pieces VALUES (?, ?)", source, CONVERTER.dumps(made))
        return made

    def close(self) -> None:
        """Write what was kept."""
        if self._connection is not None:
            self._connection.close()

    def _decoded(self, kept: bytes, decode: Callable[[bytes], T], default: D) -> "T | D":
        try:
            return decode(kept)
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, BaseValidationError) as error:
            self.problem = f"a kept result is not reused: {self._path} is damaged ({error}); delete the file"
            return default

    def _connected(self) -> sqlite3.Connection | None:
        try:
            self._path.parent.mkdir(exist_ok=True)
            (self._path.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            connection = sqlite3.connect(self._path, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if connection.execute("PRAGMA user_version").fetchone() != (VERSION,):
                connection.executescript(f"{FORGET} PRAGMA user_version = {VERSION};")
                # Versions up to 6 kept killed mutants in files of their own.
                shutil.rmtree(self._path.parent / "mutants", ignore_errors=True)
            connection.executescript(TABLES)
            for table in ("results", "reports", "seen"):
                connection.execute(f"DELETE FROM {table} WHERE measured < ?", (int(time.time()) - DAYS * 86_400,))
            if self._path.stat().st_size > MOST_BYTES:
                connection.executescript(f"{FORGET} VACUUM; {TABLES}")
        except (OSError, sqlite3.Error) as error:
            self._note_unusable(error)
            return None
        return connection

    def _note_unusable(self, error: Exception) -> None:
        damaged = type(error) is sqlite3.DatabaseError  # its subclasses are about locks, space and permissions
        hint = "; delete the file" if damaged else ""
        self.problem = f"no result is reused or kept: {self._path}: {error}{hint}"


def packed(value: Trial | dict[str, str] | str) -> bytes:
    """Return a trial, what it depends on, or the text of a report as a row has it."""
    text = value if isinstance(value, str) else CONVERTER.dumps(value)
    return zlib.compress(text.encode())
