"""Suggests the known name that is most similar to a misspelt one."""

from collections.abc import Collection
from difflib import get_close_matches
from itertools import islice

from pv.contract.wording import listed

# The number of characters of a name, and of names, that are compared: hostile input is long.
MAX_COMPARED = 200
MAX_NAMED = 24


def nearest(word: str, known: Collection[str]) -> str:
    """Return the other known name that is most similar to `word`; "" if none is similar."""
    others = [each for each in islice(known, MAX_COMPARED) if each != word]
    return next(iter(get_close_matches(word[:MAX_COMPARED], others, n=1)), "")


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return a hint with the nearest known word, or with the known words."""
    if near := nearest(word, known):
        return f"did you mean {near!r}?"
    return f"known: {listed(sorted(known), MAX_NAMED)}" if known else "none is declared"
