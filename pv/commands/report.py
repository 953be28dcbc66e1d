"""Reads saved reports and merges them."""

from collections.abc import Sequence
from pathlib import Path

from pv.errors import UsageError
from pv.results.saved import report as saved
from pv.results.saved.merge import merge
from pv.results.verdict import Report


def read(paths: Sequence[str | Path], *, partial: bool = False) -> Report:
    """Return one report of the JSON files that `pv validate --output json=FILE` wrote.

    A contract of the project, or a claim of a contract, that is in none of them is undecided, unless `partial`.

    Raise `UsageError` for a file that is damaged or of another version, and for reports that cannot be merged.
    """
    if not paths:
        raise UsageError("no report given: name the files that `pv validate --output json=FILE` wrote")
    return merge({str(path): saved.load(Path(path)) for path in paths}, partial=partial)
