"""An evaluation whose data has a tokenizer and a chat template."""

from typing import Any

from reference_trainer.pipeline.parts import Run

__all__ = ["Tokenized"]


class Tokenized(Run):
    """The packaged evaluation with digests of a tokenizer and a chat template, as Hugging Face models have them."""

    def __init__(self, settings: Any, *, tokenizer: str, chat_template: str, **others: Any) -> None:
        super().__init__(settings, **others)
        self._tokenized = {"tokenizer_sha256": tokenizer, "chat_template_sha256": chat_template}

    def make_held_back(self, *, whole: bool) -> None:
        """Make the rows, and note the digests."""
        super().make_held_back(whole=whole)
        self.digests.update(self._tokenized)
