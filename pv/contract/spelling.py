"""Suggests the known name that is most similar to a misspelt one."""

from collections.abc import Sequence
from difflib import get_close_matches

# The number of characters of a name, and of names, that are compared: hostile input is long.
MAX_COMPARED = 200


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the known name that is most similar to `word`; "" if none is similar."""
    return next(iter(get_close_matches(word[:MAX_COMPARED], known[:MAX_COMPARED], n=1)), "")
