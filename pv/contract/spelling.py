"""Suggests the known name that is most similar to a misspelt one."""

from collections.abc import Sequence
from difflib import get_close_matches

# The number of characters of a name, and of names, that are compared: hostile input is long.
MAX_COMPARED = 200


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the other known name that is most similar to `word`; "" if none is similar."""
    others = [each for each in known[:MAX_COMPARED] if each != word]
    return next(iter(get_close_matches(word[:MAX_COMPARED], others, n=1)), "")
