"""Words numbers, lists of names and long texts in messages."""

from collections.abc import Sequence

MAX_NAMES, FEW = 6, 3


def count(number: int, noun: str) -> str:
    """Return the number with its noun: `1 error`, `2 errors`, `2 processes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def listed(names: Sequence[object], most: int = MAX_NAMES) -> str:
    """Return the first names and the number of the others: `a, b and 3 more`."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def cut(text: str, most: int) -> str:
    """Return the text in at most so many characters; `...` is in place of the rest."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
