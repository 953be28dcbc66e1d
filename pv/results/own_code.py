"""The files of pv itself that a result depends on: those that decide what a trial does, not how it is reported.

They count in a project that holds pv's own source; elsewhere pv is a library.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
ROOMS = ("contract", "source", "instrument", "equations", "engines", "workers", "mutation", "execution")
"""The rooms of pv that decide which code a trial runs, on which examples, and how its end is judged."""


def is_dependency(path: Path) -> bool:
    """Return whether a result depends on a file that was read for it: any file, but only the deciding rooms of pv."""
    if not path.is_relative_to(PACKAGE):
        return True
    return path.relative_to(PACKAGE).parts[0] in ROOMS
