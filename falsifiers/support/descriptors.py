"""Open file descriptors of this process, read from /proc."""

from __future__ import annotations

from pathlib import Path


def held(path: Path) -> list[int]:
    """Return the descriptors of this process open on the path or below it, including deleted files."""
    descriptors = {int(each.name): _place(each) for each in Path("/proc/self/fd").iterdir()}
    return sorted(number for number, place in descriptors.items() if place and place.is_relative_to(path.resolve()))


def _place(descriptor: Path) -> Path | None:
    try:
        return Path(str(descriptor.readlink()).removesuffix(" (deleted)"))
    except OSError:  # the descriptor with which the directory was listed
        return None
