"""Tokens of texts that share pieces, such as the growing prefixes of a conversation: each piece is tokenised once.

A fast tokenizer first cuts a text at its added tokens, leftmost and longest first; normalizer, pre-tokenizer and model
then see each part alone, with whether it is the first of the text. So the tokens of a text are those of its pieces,
where a piece begins with an added token and ends before the next one. This is not so for added tokens that take spaces
to their left or that match whole words only: tokenizers that have one tokenise whole texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

COMPARED = 16
"""Texts whose tokens are also made from the whole, against tokenizers that override what is above."""

SHORT, MOST_SHORT = 64, 100
"""Characters of a piece that is stored from one conversation to the next, and the number of those pieces."""


class Pieces:
    """Tokenises texts piece by piece. An instance stores the pieces since the last `clear`.

    Args:
        tokenizer: A tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._stored: dict[str, list[int]] = {}
        self._uncompared = COMPARED
        self._pattern = cut_pattern(tokenizer)

    @property
    def can_split(self) -> bool:
        """Whether texts are tokenised piece by piece."""
        return self._pattern is not None

    def clear(self) -> None:
        """Forget the pieces but short ones, such as the begin of an answer; those too, if they are many."""
        self._stored = {piece: tokens for piece, tokens in self._stored.items() if len(piece) <= SHORT}
        if len(self._stored) > MOST_SHORT:
            self._stored.clear()

    def tokens(self, text: str, whole: Callable[[], list[int]]) -> list[int]:
        """Return the tokens of a text; `whole` returns those of the text that is not cut, for comparison."""
        if self._pattern is None:
            return whole()
        cuts = [match.start() for match in self._pattern.finditer(text)]
        pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if begin < end]
        if missing := [piece for piece in dict.fromkeys(pieces) if piece not in self._stored]:
            encoded = self._tokenizer(missing, add_special_tokens=False)["input_ids"]
            self._stored.update(zip(missing, encoded, strict=True))
        tokens = [token for piece in pieces for token in self._stored[piece]]
        if self._uncompared:
            self._uncompared -= 1
            if tokens != (expected := whole()):
                self._pattern = None
                return expected
        return tokens


def cut_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    """Return a pattern of the added tokens at which a text is cut first; None if pieces may have other tokens."""
    if not getattr(tokenizer, "is_fast", False) or getattr(tokenizer, "split_special_tokens", False):
        return None
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.normalized and token.content]
    if not added or any(token.lstrip or token.single_word for token in tokenizer.added_tokens_decoder.values()):
        return None
    longest_first = sorted((token.content for token in added), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))
