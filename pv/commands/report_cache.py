"""A cache of reports of passed validations, for later validations of the same files with the same options."""

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
"""The options on which the report of a validation depends."""


class ReportCache:
    """Looks up and stores the report of a validation in the result cache of its project.

    Without a cached report, a validation of unchanged files looks up the result of every trial. But first it lints the
    contracts and generates their mutants, which takes longer than all lookups. The key of a report covers all files of
    the project, so a cached report needs neither of these steps.

    Reports are not cached with `--no-cache`, `--record`, `--replay`, `--spawn`, or a `--device` other than cpu. Reports
    on files outside the project are not cached either, because the key does not cover these files.

    Args:
        options: The options of `pv validate`, by name.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._started = time.time_ns()
        self._project = project_of(options["paths"])
        self._task = {"folder": Path.cwd(), **{name: options[name] for name in OPTIONS}}
        only_cpu = not {*(options["devices"] or ())} - {"cpu"}
        inside = all(map(self._is_inside, options["paths"]))
        bypassed = options["record"] or options["replay"] or options["spawn"]
        self._enabled = only_cpu and inside and options["reuse"] and not bypassed
        self._key = ""

    def lookup(self) -> Report | None:
        """Return the cached report of an earlier validation of the same files; None if there is none."""
        if not self._enabled:
            return None
        with closing(ResultCache(self._project, watch=False)) as cache:
            self._key = cache.report_key([repr(self._task)])
            text = cache.lookup_report(self._key)
        return None if text is None else self._with_note(saved.parse(text, str(self._project.root)))

    def store(self, report: Report, text: str) -> None:
        """Store a report if the validation passed and no file of the project has changed since this object was created.

        Args:
            report: The report of the validation.
            text: The same report as JSON.
        """
        if not self._enabled or report.exit_code != 0 or report.interrupted:
            return
        with closing(ResultCache(self._project, watch=False)) as cache:
            # The key has the digests of the files before the validation. So no file may have changed since.
            if cache.unchanged_since(self._started):
                cache.store_report(self._key, text, self._started)

    def _is_inside(self, path: str | Path) -> bool:
        """Return whether the key covers a path. True for a path in the project, and for the id of a contract."""
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
            edits=worktree.digest_of_changes(self._project),
        )
