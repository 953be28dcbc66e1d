"""What this process has open, as the system tells it."""

from __future__ import annotations

from pathlib import Path


def held(path: Path) -> list[int]:
    """The descriptors by which this process has the path open, or what is beneath it, removed since or not."""
    descriptors = {int(each.name): _place(each) for each in Path("/proc/self/fd").iterdir()}
    return sorted(number for number, place in descriptors.items() if place and place.is_relative_to(path.resolve()))


def _place(descriptor: Path) -> Path | None:
    try:
        return Path(str(descriptor.readlink()).removesuffix(" (deleted)"))
    except OSError:  # the one with which the list was read
        return None
