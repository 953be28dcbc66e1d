"""A cache of the reports of validations that passed, for a later validation of the same files with the same options."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pv.commands.plan import project_of
from pv.results import worktree
from pv.results.reuse.cache import ResultCache
from pv.results.saved import report as saved
from pv.results.verdict import Report

OPTIONS = ("paths", "only", "contracts", "devices", "require", "subjects", "examples", "seed", "mutants", "shard")
"""The options of a validation that decide its report."""


class ReportCache:
    """The cached report of a validation with some options, in the result cache of its project.

    A validation of unchanged files could look up all its trials instead, but it would first lint its contracts and
    generate their mutants, which takes longer than all lookups. A report is keyed by all files of the project, so
    neither is needed.

    Reports of validations with `--device`, `--record`, `--replay` or `--spawn` are not cached, nor are reports on files
    outside the project, whose changes the key does not cover.

    Args:
        options: The options of `pv validate`, by name.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._started = time.time_ns()
        self._project = project_of(options["paths"])
        self._task = {"folder": Path.cwd(), **{name: options[name] for name in OPTIONS}}
        only_cpu = not {*(options["devices"] or ())} - {"cpu"}
        inside = all(map(self._is_inside, options["paths"]))
        measured = options["record"] or options["replay"] or options["spawn"]
        self._enabled = only_cpu and inside and options["reuse"] and not measured
        self._key = ""

    def lookup(self) -> Report | None:
        """Return the report of an earlier validation; None if there is none or a file of the project has changed."""
        if not self._enabled:
            return None
        with closing(ResultCache(self._project, watch=False)) as cache:
            self._key = cache.report_key([repr(self._task)])
            text = cache.lookup_report(self._key)
        return None if text is None else self._with_note(saved.parse(text, str(self._project.root)))

    def store(self, report: Report, text: str) -> None:
        """Store a report, unless it did not pass or a file of the project has changed since this object was created.

        Args:
            report: The report of the validation.
            text: The same report as JSON.
        """
        if not self._enabled or report.exit_code != 0 or report.interrupted:
            return
        with closing(ResultCache(self._project, watch=False)) as cache:
            # The key has the digests of the files before the validation, so no file may have changed during it.
            if cache.unchanged_since(self._started):
                cache.store_report(self._key, text, self._started)

    def _is_inside(self, path: str | Path) -> bool:
        """Return whether a path is in the project, whose files the key covers; an id, which is no path, is inside."""
        return not Path(path).exists() or Path(path).resolve().is_relative_to(self._project.root)

    def _with_note(self, report: Report) -> Report:
        """Return a cached report with the current time and commit, and a note about its origin."""
        note = f"nothing has changed since the validation of {report.started}: all its results are reused"
        notes = tuple(text for text in report.notes if "reused" not in text)
        return replace(
            report,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=(time.time_ns() - self._started) / 1e9,
            notes=(*notes, note),
            commit=worktree.commit_of(self._project.root),
            edits=worktree.edits(self._project),
        )
