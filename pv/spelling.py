"""What somebody who misspelt a name probably meant."""

from collections.abc import Sequence
from difflib import get_close_matches

# How much of a name, and how many names, are compared: hostile input has many of both.
MAX_COMPARED = 200


def nearest(word: str, known: Sequence[str]) -> str:
    """The known name that is most like `word`; "" where none is much like it."""
    return next(iter(get_close_matches(word[:MAX_COMPARED], known[:MAX_COMPARED], n=1)), "")
