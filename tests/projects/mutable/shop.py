"""What a basket costs."""

import os
from pathlib import Path

import helper


def price(cents, pieces, member=False):
    """At most 90 percent for members; at least nothing."""
    whole = cents * pieces
    if member and pieces > 10:
        whole = whole * 9 // 10
    if whole < 0:
        raise ValueError(whole)
    return helper.rounded(whole)


def countdown(seconds):
    while seconds > 0:
        seconds -= 1
    return seconds


def leave(status):
    if status > 100:
        os._exit(status)
    return status


def forget(folder=None):
    place = Path.cwd() if folder is None else Path(folder)
    for path in place.glob("*.tmp"):
        path.unlink()
    return sorted(path.name for path in place.iterdir())


def never_called():
    return 1 + 1
