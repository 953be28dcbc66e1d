"""Tokenise texts that share pieces, such as the growing prefixes of a conversation, without repeated work.

A fast tokenizer first cuts a text at its added tokens (such as <|im_end|>), leftmost and longest first. Normalizer,
pre-tokenizer and model then see each part alone. So a text can be cut into pieces, which begin with an added token and
end before the next one, and its tokens are the joined tokens of the pieces. This does not hold for a tokenizer with an
added token that strips spaces on its left or matches only whole words; such a tokenizer tokenises whole texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COMPARED = 16
"""The number of first texts that are also tokenised whole, to detect a tokenizer that needs whole texts."""

SHORT, MOST_SHORT = 64, 100
"""Pieces of at most `SHORT` characters stay stored between conversations, at most `MOST_SHORT` of them."""


class Pieces:
    """Tokenises texts piece by piece, and stores the tokens of pieces until `clear`.

    Args:
        tokenizer: A tokenizer of transformers.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._stored: dict[str, list[int]] = {}
        self._uncompared = COMPARED
        self._pattern = cut_pattern(tokenizer)
        if self._pattern is not None:  # as a call of the tokenizer does, also if its file enables them
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()

    @property
    def can_split(self) -> bool:
        """Whether texts are tokenised piece by piece."""
        return self._pattern is not None

    def clear(self) -> None:
        """Remove stored pieces, except short ones such as the start of an answer; remove all if too many are short."""
        self._stored = {piece: tokens for piece, tokens in self._stored.items() if len(piece) <= SHORT}
        if len(self._stored) > MOST_SHORT:
            self._stored.clear()

    def tokens(self, text: str, whole: Callable[[], list[int]]) -> list[int]:
        """Return the tokens of a text.

        Args:
            text: The text.
            whole: Returns the tokens of the whole text by the tokenizer alone.
        """
        if self._pattern is None:
            return whole()
        cuts = [match.start() for match in self._pattern.finditer(text)]
        pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if begin < end]
        if missing := [piece for piece in dict.fromkeys(pieces) if piece not in self._stored]:
            # Without offsets and checks of arguments, which take a third of the time of a call of the tokenizer.
            encoded = self._tokenizer.backend_tokenizer.encode_batch_fast(missing, add_special_tokens=False)
            self._stored.update(zip(missing, (piece.ids for piece in encoded), strict=True))
        tokens = [token for piece in pieces for token in self._stored[piece]]
        # One difference in the first texts is enough to give up cutting for this tokenizer.
        if self._uncompared:
            self._uncompared -= 1
            if tokens != (expected := whole()):
                self._pattern = None
                return expected
        return tokens


def cut_pattern(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str] | None:
    """Return a pattern of the added tokens at which texts are cut, or None if the tokenizer does not allow cutting."""
    if not getattr(tokenizer, "is_fast", False) or getattr(tokenizer, "split_special_tokens", False):
        return None
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.normalized and token.content]
    if not added or any(token.lstrip or token.single_word for token in tokenizer.added_tokens_decoder.values()):
        return None
    # An alternation of a pattern takes the first alternative that matches, so longer tokens come first.
    longest_first = sorted((token.content for token in added), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))
