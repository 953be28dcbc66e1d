"""Keeps the results of trials for later validations, several states of each."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pv.engines.trial import Trial
from pv.results.reuse.changes import changed_since, is_lost
from pv.results.reuse.dependencies import EVERYTHING, Source, dependencies
from pv.results.reuse.environment import differences, environment
from pv.results.reuse.opened import Opened
from pv.results.reuse.tables import Tables, packed
from pv.results.reuse.tree import Tree
from pv.source.digest import digest_data
from pv.source.project import Project

MOST_STATES = 8
"""Number of states in which a result is kept, as those of branches; the least recently used one is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a kept result: its task, when it was measured, and what has changed since."""

    task: str
    measured: int
    environment: list[str]
    changed: list[str]


class Reuse:
    """The kept results of one project. If their tables cannot be used, nothing is kept, and `problem` says why.

    watch: whether results will be kept, which depend on the files that are opened from now on. elsewhere: how this
    environment differs from that of the newest result; nothing if there are results of this one.
    """

    def __init__(self, project: Project, *, watch: bool = True) -> None:
        self.count = 0
        self._started = time.time_ns()
        self._environment = environment()
        self._digest = digest_data(self._environment)
        self._noted = set[str]()
        self._tables = Tables(project.root)
        self.elsewhere = self._elsewhere()
        self._tree = Tree(project, self._tables.pieces)
        if watch:
            self._tree.digest(EVERYTHING)  # it opens every file, so before they are watched
        self._opened = Opened(project) if watch else None

    @property
    def problem(self) -> str:
        """Return why results cannot be kept or reused; "" if they can."""
        return self._tables.problem

    def key(self, task: Any) -> str:
        """Return the key of the result of a task, JSON data, in this environment."""
        return digest_data([self._digest, task])

    def recalled(self, key: str, accept: Callable[[Trial], bool] = lambda _: True) -> Trial | None:
        """Return an accepted result of an earlier run whose dependencies are unchanged; None if there is none.

        Runs store different results under one key: `pv mutate` also stores timeouts, which a validation measures again.
        """
        query = "SELECT state, depends, trial FROM results WHERE task = ? ORDER BY used DESC, rowid DESC"
        for state, depends, trial in self._tables.run(query, key):
            if self._changed(depends):
                continue
            if (found := self._tables.trial(trial)) is not None and accept(found):
                self.count += 1
                self._tables.run("UPDATE results SET used = ? WHERE task = ? AND state = ?", time.time_ns(), key, state)
                return found
        return None

    def _elsewhere(self) -> list[str]:
        query = "SELECT environment FROM results ORDER BY environment = ? DESC, used DESC LIMIT 1"
        found = self._tables.run(query, self._digest)
        return differences(self._described(found[0][0]), self._environment) if found else []

    def newest(self, claim: str) -> "Kept | None":
        """Return what is kept of the newest result of a claim on its own subject; None if there is none."""
        columns = "task, environment, depends, measured"
        query = f"SELECT {columns} FROM results WHERE claim = ? ORDER BY used DESC, rowid DESC LIMIT 1"
        for task, digest, depends, measured in self._tables.run(query, claim):
            others = differences(self._described(digest), self._environment)
            return Kept(task=task, measured=measured, environment=others, changed=self._changed(depends))
        return None

    def _described(self, digest: str) -> list[str]:
        """Return the description of an environment in which results were measured."""
        found = self._tables.run("SELECT description FROM environments WHERE digest = ?", digest)
        described: list[str] = json.loads(found[0][0]) if found else []
        return described

    def note(self, claim: str, *, failed: bool) -> None:
        """Note whether a claim failed. It decides nothing but the order of a later validation."""
        statement = "INSERT OR IGNORE INTO failed VALUES (?)" if failed else "DELETE FROM failed WHERE claim = ?"
        self._tables.run(statement, claim)

    def order(self, claim: str) -> tuple[int, float]:
        """Return the place of a claim in a search for the first failure.

        What failed last comes first, then what executes a changed function; of these the shortest.
        """
        query = "SELECT depends, trial FROM results WHERE claim = ? ORDER BY used DESC, rowid DESC LIMIT 1"
        executes, cpu_s = False, 0.0
        for depends, trial in self._tables.run(query, claim):
            executes = any(name.startswith("function ") for name in self._changed(depends))
            cpu_s = found.cpu_s if (found := self._tables.trial(trial)) is not None else 0.0
        failed = self._tables.run("SELECT 1 FROM failed WHERE claim = ?", claim)
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
        if changed_since(self._tree, depends, self._started) or is_lost(depends):
            return
        row = (key, digest_data(depends), claim, self._digest, packed(depends), packed(found), _now(), time.time_ns())
        self._tables.run("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        self._tables.run(
            "INSERT OR IGNORE INTO environments VALUES (?, ?)", self._digest, json.dumps(self._environment)
        )
        for name in depends:
            if name.startswith(("file ", "opened ", "entry ", "listed ")) and name not in self._noted:
                self._noted.add(name)
                self._tables.run("INSERT OR REPLACE INTO seen VALUES (?, ?)", name, _now())
        oldest = "SELECT state FROM results WHERE task = ? ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?"
        self._tables.run(f"DELETE FROM results WHERE task = ? AND state IN ({oldest})", key, key, MOST_STATES)

    def key_of_all(self, task: Any) -> str:
        """Return the key of what depends on every file of the project and its evidence."""
        return digest_data([self._digest, task, self._tree.digest(EVERYTHING), self._tree.evidence()])

    def report(self, key: str) -> str | None:
        """Return a kept report, whose results count as used now; None if there is none."""
        key = self._with_seen(key)
        for report, since, used in self._tables.run("SELECT report, since, used FROM reports WHERE key = ?", key):
            now = time.time_ns()
            self._tables.run("UPDATE results SET used = ? WHERE used BETWEEN ? AND ?", now, since, used)
            self._tables.run("UPDATE reports SET since = ?, used = ? WHERE key = ?", now, now, key)
            return self._tables.report(report)
        return None

    def keep_report(self, key: str, text: str, since: int) -> None:
        """Keep a report beside the last ones. since: the moment at which its validation began, in nanoseconds."""
        row = (self._with_seen(key), packed(text), _now(), since, time.time_ns())
        self._tables.run("INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?)", *row)
        newest = "SELECT key FROM reports ORDER BY used DESC LIMIT ?"
        self._tables.run(f"DELETE FROM reports WHERE key NOT IN ({newest})", MOST_STATES)

    def unchanged_since(self, moment: int) -> bool:
        """Return whether no file of the project was changed after a time in nanoseconds."""
        return self._tree.newest() < moment and not changed_since(self._tree, self._extra_dependencies(), moment)

    def close(self) -> None:
        """Write what was kept."""
        if self._opened is not None:
            self._opened.close()
        self._tables.close()

    def _extra_dependencies(self) -> list[str]:
        """Return what any result depends on of which the state of all files may not tell."""
        return [name for (name,) in self._tables.run("SELECT dependency FROM seen ORDER BY dependency")]

    def _with_seen(self, key: str) -> str:
        return digest_data([key, {name: self._tree.digest(name) for name in self._extra_dependencies()}])

    def _changed(self, depends: bytes) -> list[str]:
        """Return the dependencies of a kept result that have changed."""
        return [name for name, digest in self._tables.depends(depends).items() if self._tree.digest(name) != digest]


def _now() -> int:
    return int(time.time())
