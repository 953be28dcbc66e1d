"""The files of pv itself that a cached result depends on: they decide what a trial does, not how it is reported."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
DECIDING_PACKAGES = ("contract", "source", "instrument", "equations", "engines", "workers", "mutation", "execution")
"""The subpackages of pv that decide which code a trial runs, on which examples, and what its status is."""


def is_dependency(path: Path) -> bool:
    """Return whether a result depends on a file it read. Of pv itself, only files in `DECIDING_PACKAGES` count."""
    if not path.is_relative_to(PACKAGE):
        return True
    return path.relative_to(PACKAGE).parts[0] in DECIDING_PACKAGES
