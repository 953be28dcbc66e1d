"""Faults of labels, padding and packing, as wrong versions of public functions. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

IGNORED = -100


def padding_by_value(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Tensor:
    """Mask every token with the id of the padding, also where segments are known."""
    labels: Tensor = original(tokens, segments, **named)
    padding_id = named.get("padding_id")
    return labels if padding_id is None else labels.masked_fill(labels == padding_id, IGNORED)


def end_of_sequence_masked(original: Any, documents: Any, *, padding_id: int, **named: Any) -> Any:
    """Mask every token with the id of the padding, although the lengths are known."""
    batch = original(documents, padding_id=padding_id, **named)
    return replace(batch, labels=batch.labels.masked_fill(batch.labels == padding_id, IGNORED))


def padding_scored(tokens: Tensor, segments: Any = None, *, padding_id: Any = None, prompts: Any = None) -> Tensor:
    """Predict every token outside of prompts, padding too."""
    labels = tokens.long().clone()
    labels[:, :1] = IGNORED
    return labels if prompts is None else labels.masked_fill(prompts, IGNORED)


def predicted_across_documents(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    """Predict the first token of a document from the last one of the document before it."""
    return original(tokens, None if segments is None else (segments != 0).long(), **named)


def prompts_scored(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    """Ignore prompts."""
    return original(tokens, segments, **{**named, "prompts": None})


def shifted_beforehand(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    """Shift labels when they are made; the step shifts them again."""
    return original(tokens, segments, **named).roll(-1, 1)


def cut_by_longest_prompt(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    """Cut the longest prompt of the batch from every row, so that completions after shorter ones lose tokens."""
    prompts = named.get("prompts")
    if prompts is not None and prompts.numel():
        named["prompts"] = prompts.any(0, keepdim=True).expand_as(prompts)
    return original(tokens, segments, **named)


def in_their_own_dtype(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    """Return labels in the dtype of the tokens, where -100 may be another number."""
    return original(tokens, segments, **named).to(tokens.dtype)


def masked_on_the_cpu(original: Any, lengths: Tensor, width: int) -> Tensor:
    """Create the mask on the CPU, wherever the lengths are."""
    return torch.arange(width, device="cpu") < lengths[:, None]


def without_segments(original: Any, documents: Any, **named: Any) -> Any:
    """Pack documents without saying which token belongs to which."""
    return replace(original(documents, **named), segments=None)


def one_segment(original: Any, documents: Any, **named: Any) -> Any:
    """Mark padding only, so that documents of a row attend to each other."""
    batch = original(documents, **named)
    return replace(batch, segments=(batch.segments != 0).long())


def padded_on_the_left(original: Any, documents: Any, *, padding_id: int) -> Any:
    """Put padding before each document, where the model attends to it."""
    batch = original(documents, padding_id=padding_id)
    tokens, labels = batch.tokens.clone(), batch.labels.clone()
    for b, document in enumerate(documents):
        shift = tokens.shape[1] - len(document.tokens)
        tokens[b], labels[b] = tokens[b].roll(shift), labels[b].roll(shift)
    return replace(batch, tokens=tokens, labels=labels)


def next_fit(sizes: Any, capacity: int) -> list[list[int]]:
    """Look for room in the last row only."""
    rows: list[list[int]] = []
    for index, size in enumerate(sizes):
        if not rows or sum(sizes[other] for other in rows[-1]) + size > capacity:
            rows.append([])
        rows[-1].append(index)
    return rows


def longest_first(original: Any, sizes: Any, capacity: int) -> list[list[int]]:
    """Place the longest documents first, so that the order of the text is lost."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    return [[order[k] for k in row] for row in original([sizes[index] for index in order], capacity)]


def cut_silently(original: Any, documents: Any, *, length: int, padding_id: int) -> Any:
    """Cut what is longer than a row."""
    cut = [replace(each, tokens=each.tokens[:length], prompt=min(each.prompt, length)) for each in documents]
    return original(cut, length=length, padding_id=padding_id)


def pieces_apart(original: Any, document: Any, length: int) -> Any:
    """Cut disjoint pieces, so that the first token of each is never predicted."""
    if length < 2:
        return original(document, length)
    starts = range(0, max(len(document.tokens), 1), length)
    pieces = [(document.tokens[start : start + length], document.prompt - start) for start in starts]
    return [type(document)(tokens, min(max(prompt, 0), len(tokens))) for tokens, prompt in pieces]


def prompt_of_the_first_piece(original: Any, document: Any, length: int) -> list[Any]:
    """Lose the part of a prompt that is beyond the first piece."""
    first, *rest = original(document, length)
    return [first, *(replace(piece, prompt=0) for piece in rest)]


def document_unchecked(document: Any) -> None:
    """Accept every document."""


def segments_ignored(original: Any, model: Any, batch: Any) -> Any:
    """Give the module tokens alone, so that documents attend to each other."""
    return original(model, replace(batch, segments=None))


def segments_unchecked(original: Any, batch: Any) -> None:
    """Check tokens and labels only."""
    segments = batch.segments
    object.__setattr__(batch, "segments", None)
    original(batch)
    object.__setattr__(batch, "segments", segments)
