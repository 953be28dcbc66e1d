"""Chats and texts of a file as documents of tokens; only what the assistant writes is predicted.

A line of a JSON-lines file, or a row of a Parquet file or of a saved dataset, has one of three forms: `messages`, a
list of objects with `role` and `content`; `prompt` and `completion`; or `text`, all of which is predicted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reference_trainer.data.batches import Document
from reference_trainer.data.stored import StoredDocuments, write_documents
from reference_trainer.errors import DataError, first_line
from reference_trainer.huggingface.sources import rows_of

__all__ = ["Chats", "encoded", "read_chats", "write_chats"]

COUNTS = "counts.json"
FORMS = "expected `messages`, `prompt` and `completion`, or `text`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats:
    """Stored documents, in the order of their file. cut: those that were longer; empty: those that predict nothing.

    largest: the largest token.
    """

    documents: Sequence[Document]
    cut: int
    empty: int
    largest: int


def write_chats(path: Path, tokenizer: Any, length: int, directory: Path) -> None:
    """Write the documents of a .jsonl or .parquet file or of a saved dataset into a directory.

    They are cut after `length` tokens, and one at a time is in memory. Raise `DataError`, with the file and the line,
    for what cannot be read or has another form, and if no document has a token to predict.
    """
    counts = Counter[str]()

    def kept() -> Iterator[Document]:
        for where, row in rows_of(path):
            whole = _encoded(where, row, tokenizer)
            first = _first(whole, length)
            is_empty = first.given is not None and bool(first.given[1:].all())
            counts.update(cut=len(whole.tokens) > length, empty=is_empty, kept=not is_empty)
            if not is_empty:
                counts["largest"] = max(counts["largest"], int(first.tokens.max()))
                yield first

    write_documents(directory, kept())
    if not counts["kept"]:
        raise DataError(f"{path} has no document with a token to predict in its first {length} tokens")
    (directory / COUNTS).write_text(json.dumps(counts), encoding="utf-8")


def read_chats(directory: Path) -> Chats:
    """Return what `write_chats` has written; documents are read when they are asked for."""
    counts = json.loads((directory / COUNTS).read_text(encoding="utf-8"))
    return Chats(
        documents=StoredDocuments(directory), cut=counts["cut"], empty=counts["empty"], largest=counts["largest"]
    )


def _first(document: Document, length: int) -> Document:
    given = None if document.given is None else document.given[:length]
    return Document(document.tokens[:length], given=given)


def _encoded(where: str, row: Any, tokenizer: Any) -> Document:
    if not isinstance(row, dict):
        raise DataError(f"{where}: {type(row).__name__}, expected an object; {FORMS}")
    try:
        if row.get("messages") is not None:
            return encoded(row["messages"], tokenizer)
        if isinstance(row.get("completion"), str) and isinstance(row.get("prompt"), str):
            return _completed(row["prompt"], row["completion"], tokenizer)
        if isinstance(row.get("text"), str):
            return _completed("", row["text"], tokenizer)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except Exception as error:  # templates raise errors of their own
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise DataError(f"{where}: the chat template rejects it: {reason}") from error
    keys = (f"{name} ({'null' if value is None else type(value).__name__})" for name, value in row.items())
    raise DataError(f"{where}: its keys are {', '.join(keys) or 'none'}; {FORMS}")


def _completed(prompt: str, completion: str, tokenizer: Any) -> Document:
    """Return a prompt, which is given, and its completion with the end-of-sequence token."""
    before = tokenizer(prompt)["input_ids"]
    after = tokenizer(completion, add_special_tokens=False)["input_ids"]
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    if before and before[-1:] == end:  # of a tokenizer that ends every text
        before = before[:-1]
    return _document([*before, *after, *end], [True] * len(before) + [False] * (len(after) + len(end)))


def encoded(messages: Sequence[Any], tokenizer: Any) -> Document:
    """Return a conversation as the tokenizer's chat template writes it; the turns of others are given.

    A turn of the assistant begins after the prompt for it, and has the tokens that end it. Raise `DataError` for a
    template that renders earlier turns differently when later ones follow: no turn has tokens of its own then.
    """
    if not isinstance(messages, list | tuple) or not all(
        isinstance(each, dict) and "role" in each for each in messages
    ):
        raise DataError("invalid messages: expected a list of objects with `role` and `content`")
    for turn, message in enumerate(messages, 1):
        if message.get("content") is None and not any(message[name] for name in message if name != "role"):
            raise DataError(f"message {turn} has no content")  # templates write "None"
    tokens: list[int] = []
    given: list[bool] = []
    for turn, message in enumerate(messages, 1):
        if message["role"] != "assistant":
            continue
        before = _templated(tokenizer, messages[: turn - 1], add_generation_prompt=True) if turn > 1 else []
        after = _templated(tokenizer, messages[:turn])
        if after[: len(before)] != before or before[: len(tokens)] != tokens:
            raise DataError(f"the chat template renders message {turn} differently when later messages follow")
        given += [True] * (len(before) - len(given)) + [False] * (len(after) - len(before))
        tokens = after
    return _document(tokens, given)


def _templated(tokenizer: Any, messages: Sequence[Any], **options: Any) -> list[int]:
    found: list[int] = tokenizer.apply_chat_template(list(messages), tokenize=True, return_dict=False, **options)
    return found


def _document(tokens: Sequence[int], given: Sequence[bool]) -> Document:
    mask = torch.tensor(given, dtype=torch.bool, device="cpu")
    return Document(torch.tensor(tokens, dtype=torch.int64, device="cpu"), given=mask)
