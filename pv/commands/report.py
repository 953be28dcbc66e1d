"""Read saved reports and merge them."""

from collections.abc import Sequence
from pathlib import Path

from pv.errors import UsageError
from pv.results.saved import report as saved
from pv.results.saved.merge import merge
from pv.results.verdict import Report


def read(paths: Sequence[str | Path], *, partial: bool = False) -> Report:
    """Read JSON reports of `pv validate --output json=FILE` and merge them.

    Args:
        paths: The files.
        partial: Accept contracts of the project, and claims of a contract, that are in no report. By default these are
            undecided.

    Raises:
        UsageError: A file is damaged or of another version, or the reports cannot be merged.
    """
    if not paths:
        raise UsageError("no report given: name the files that `pv validate --output json=FILE` wrote")
    return merge({str(path): saved.load(Path(path)) for path in paths}, partial=partial)
