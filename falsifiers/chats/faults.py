"""Wrong versions of functions about chats."""

from __future__ import annotations

from typing import Any


def all_in_memory(original: Any, directory: Any, documents: Any) -> None:
    original(directory, list(documents))


def always_split(original: Any, tokenizer: Any) -> Any:
    import re

    return re.compile("|".join(re.escape(token.content) for token in tokenizer.added_tokens_decoder.values()))


def as_completed(original: Any, function: Any, blocks: Any, workers: int) -> Any:
    return reversed(list(original(function, blocks, workers))) if workers else original(function, blocks, workers)


def given_forgotten(original: Any, directory: Any, documents: Any) -> None:
    from reference_trainer.data.documents import Document

    original(directory, (Document(document.tokens) for document in documents))


def rewritten_turns_joined(original: Any, messages: Any, writer: Any, **options: Any) -> Any:
    return original(messages, writer, **options)[-1:]


def all_predicted(original: Any, messages: Any, writer: Any, **options: Any) -> Any:
    from reference_trainer.data.documents import Document

    return [Document(d.tokens, given=d.given & False) for d in original(messages, writer, **options)]


def fields_unchecked(original: Any, writer: Any, turns: Any, text: Any, begin: Any, tools: Any) -> None:
    pass
