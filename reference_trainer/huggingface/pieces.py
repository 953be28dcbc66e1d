"""Tokenise texts that share pieces, such as the growing prefixes of a conversation, without repeated work.

A fast tokenizer first cuts a text at its added tokens (such as <|im_end|>), leftmost and longest first. Normalizer,
pre-tokenizer and model then process each part separately. So a text can be cut into pieces that begin with an added
token and end before the next added token: the tokens of the text are the joined tokens of its pieces. This is not true
for a tokenizer with an added token that strips spaces on its left or matches only whole words; with such a tokenizer,
texts are not cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COMPARED = 16
"""Number of texts, from the first, that are also tokenised without cutting, to detect tokenizers with other results."""

SHORT_PIECE, MAX_SHORT = 64, 100
"""After a conversation, at most `MAX_SHORT` pieces of at most `SHORT_PIECE` characters stay stored."""


class Pieces:
    """Tokenises texts piece by piece, and stores the tokens of the pieces; `clear` removes all but short pieces.

    Args:
        tokenizer: A tokenizer of transformers.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._stored: dict[str, list[int]] = {}
        self._comparisons_left = COMPARED
        self._pattern = cut_pattern(tokenizer)
        if self._pattern is not None:
            # The file of the tokenizer may enable truncation and padding. A call of the tokenizer disables both; the
            # direct use of its backend in `tokens` does not.
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()

    @property
    def can_split(self) -> bool:
        """Whether texts are tokenised piece by piece."""
        return self._pattern is not None

    def clear(self) -> None:
        """Remove stored pieces except short ones, such as the start of an answer; if these are too many, remove all."""
        self._stored = {piece: tokens for piece, tokens in self._stored.items() if len(piece) <= SHORT_PIECE}
        if len(self._stored) > MAX_SHORT:
            self._stored.clear()

    def tokens(self, text: str, whole: Callable[[], list[int]]) -> list[int]:
        """Return the tokens of a text.

        Args:
            text: The text.
            whole: A function that returns the tokens of the text without cutting it.
        """
        if self._pattern is None:
            return whole()
        cuts = [match.start() for match in self._pattern.finditer(text)]
        pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if begin < end]
        if missing := [piece for piece in dict.fromkeys(pieces) if piece not in self._stored]:
            # The backend skips offsets and checks of arguments, a third of the time of a call of the tokenizer.
            encoded = self._tokenizer.backend_tokenizer.encode_batch_fast(missing, add_special_tokens=False)
            self._stored.update(zip(missing, (piece.ids for piece in encoded), strict=True))
        tokens = [token for piece in pieces for token in self._stored[piece]]
        # If the tokens of one of the first texts differ, do not cut texts for this tokenizer any more.
        if self._comparisons_left:
            self._comparisons_left -= 1
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
    # A regular expression takes the first alternative that matches, so longer tokens come first.
    longest_first = sorted((token.content for token in added), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))
