"""The lines in which a working tree differs from a commit, read from `git diff --unified=0`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

HEADER = re.compile(r"@@ -(?P<old>\d+)(?:,(?P<removed>\d+))? \+(?P<new>\d+)(?:,(?P<added>\d+))? @@.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """A change: the `removed` lines that started at line `old` became `added` lines that start at line `new`."""

    old: int
    removed: int
    new: int
    added: int

    @property
    def first(self) -> int:
        """Return the first changed line now; for a pure removal, the line before it."""
        return max(self.new, 1)

    def meets(self, first: int, last: int) -> bool:
        """Return whether a line from `first` to `last` changed, or lines between them were removed."""
        return self.first <= last and self.first + max(self.added, 1) - 1 >= first


Hunks = Mapping[str, tuple[Hunk, ...]]


def parse(diff: str) -> dict[str, tuple[Hunk, ...]]:
    """Return the hunks by path of every file that still exists.

    Args:
        diff: Output of `git diff --unified=0 --no-prefix`.
    """
    hunks_by_path: dict[str, list[Hunk]] = {}
    path, skip = "", 0
    for line in diff.splitlines():
        header = HEADER.fullmatch(line) if not skip else None
        # The lines of a hunk are skipped by number: a removed line may itself read like a header.
        if skip:
            skip -= not line.startswith("\\")
        elif line.startswith("+++ "):
            path = line[4:].rstrip("\t")
        elif header is not None:
            hunk = Hunk(**{name: int(text if text is not None else 1) for name, text in header.groupdict().items()})
            hunks_by_path.setdefault(path, []).append(hunk)
            skip = hunk.removed + hunk.added
    return {path: tuple(hunks) for path, hunks in hunks_by_path.items() if path != "/dev/null"}


def line_now(hunks: Hunks, path: str, line: int) -> int | None:
    """Return the line now at which `line` of the base was removed; None if no hunk removed it."""
    return next((h.first for h in hunks.get(path, ()) if h.old <= line < h.old + h.removed), None)


def changed_lines(hunks: Hunks, path: str, first: int, last: int) -> Iterator[int]:
    """Yield the first changed line of every hunk that touches the lines `first` to `last`."""
    for hunk in hunks.get(path, ()):
        if hunk.meets(first, last):
            yield max(hunk.first, first)
