"""Keeps the report of a whole validation that passed, for the next one of the same files with the same options."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pv.commands.plan import project_of
from pv.results import store, worktree
from pv.results.reuse.cache import Reuse
from pv.results.saved import report as saved
from pv.results.verdict import Report

OPTIONS = ("paths", "only", "contracts", "devices", "require", "subjects", "examples", "seed", "mutants", "shard")
"""The options of a validation that decide its report."""


class Remembered:
    """The kept report of a validation with these options. None is kept of one that measures a device or replays."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._started = time.time_ns()
        self._project = project_of(options["paths"])
        self._asked = {"folder": Path.cwd(), **{name: options[name] for name in OPTIONS}}
        cpu = not {*(options["devices"] or ())} - {"cpu"}
        inside = all(map(self._is_inside, options["paths"]))
        measured = options["record"] or options["replay"] or options["spawn"]
        self._able = cpu and inside and options["reuse"] and not measured
        self._key = ""

    def recall(self) -> Report | None:
        """Return the report of an earlier validation if no file of the project has changed since."""
        if not self._able:
            return None
        with closing(Reuse(self._project, watch=False)) as reuse:
            self._key = reuse.key_of_all([repr(self._asked)])
            text = reuse.report(self._key)
        return None if text is None else self._with_note(saved.parse(text, str(self._project.root)))

    def keep(self, report: Report, text: str) -> None:
        """Keep a report that passed, with its JSON, unless a file has changed meanwhile."""
        if not self._able or report.exit_code != 0 or report.interrupted:
            return
        with closing(Reuse(self._project, watch=False)) as reuse:
            if reuse.unchanged_since(self._started):
                reuse.keep_report(self._key, text, self._started)

    def _is_inside(self, path: str | Path) -> bool:
        """Return whether a path lies in the project, whose files are compared; an id does."""
        return not Path(path).exists() or Path(path).resolve().is_relative_to(self._project.root)

    def _with_note(self, report: Report) -> Report:
        """Return a kept report as one of now, with a note."""
        note = f"nothing has changed since the validation of {report.started}: all its results are reused"
        others = tuple(each for each in report.notes if "reused" not in each)
        return replace(
            report,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=(time.time_ns() - self._started) / 1e9,
            notes=(*others, note),
            commit=store.commit_of(self._project.root),
            edits=worktree.edits(self._project),
        )
