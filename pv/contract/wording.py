"""Format numbers, lists of names, long texts and hints on misspelt names for messages."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import islice

# Largest number of names in a list, and in a short list.
MAX_NAMES, FEW = 6, 3
# A contract may be hostile, and the comparison of two names takes quadratic time, so characters and names are limited.
MAX_COMPARED = 200
MAX_NAMED = 24
"""Largest number of valid names in a hint."""


def count(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural: `1 error`, `2 errors`, `2 processes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def listed(names: Sequence[object], most: int = MAX_NAMES) -> str:
    """Return the first `most` names and the number of the remaining ones: `a, b and 3 more`."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def cut(text: str, width: int) -> str:
    """Return the text truncated to `width` characters, ending with `...`."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def nearest(word: str, names: Collection[str]) -> str:
    """Return the name that is most similar to `word` without being equal; "" if none is similar."""
    candidates = [name for name in islice(names, MAX_COMPARED) if name != word]
    return next(iter(get_close_matches(word[:MAX_COMPARED], candidates, n=1)), "")


def did_you_mean(word: str, names: Collection[str]) -> str:
    """Return a hint with the valid name that is most similar to `word`, or with at most `MAX_NAMED` valid names."""
    if near := nearest(word, names):
        return f"did you mean {near!r}?"
    return f"known: {listed(sorted(names), MAX_NAMED)}" if names else "none is declared"


def has_open_bracket(text: str) -> bool:
    """Return whether a text has unbalanced brackets."""
    return any(text.count(left) != text.count(right) for left, right in ("()", "[]", "{}"))
