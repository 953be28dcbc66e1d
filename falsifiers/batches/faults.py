"""Faults of labels, padding and packing, as wrong versions of public functions. `original` is the replaced function."""

from dataclasses import replace
from typing import Any

from torch import Tensor

IGNORED = -100


def padding_by_value(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Tensor:
    labels: Tensor = original(tokens, segments, **named)
    padding_id = named.get("padding_id")
    return labels if padding_id is None else labels.masked_fill(labels == padding_id, IGNORED)


def end_of_sequence_masked(original: Any, documents: Any, *, padding_id: int, **named: Any) -> Any:
    batch = original(documents, padding_id=padding_id, **named)
    return replace(batch, labels=batch.labels.masked_fill(batch.labels == padding_id, IGNORED))


def padding_scored(tokens: Tensor, segments: Any = None, *, padding_id: Any = None, prompts: Any = None) -> Tensor:
    labels = tokens.long().clone()
    labels[:, :1] = IGNORED
    return labels if prompts is None else labels.masked_fill(prompts, IGNORED)


def shifted_beforehand(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    return original(tokens, segments, **named).roll(-1, 1)


def cut_by_longest_prompt(original: Any, tokens: Tensor, segments: Any = None, **named: Any) -> Any:
    prompts = named.get("prompts")
    if prompts is not None and prompts.numel():
        named["prompts"] = prompts.any(0, keepdim=True).expand_as(prompts)
    return original(tokens, segments, **named)


def packed_in_order(original: Any, sizes: Any, capacity: int) -> Any:
    from reference_trainer.data.documents import first_fit

    return first_fit(sizes, capacity)


def pieces_apart(original: Any, document: Any, length: int) -> Any:
    if length < 2:
        return original(document, length)
    starts = range(0, max(len(document.tokens), 1), length)
    pieces = [(document.tokens[start : start + length], document.prompt - start) for start in starts]
    return [type(document)(tokens, min(max(prompt, 0), len(tokens))) for tokens, prompt in pieces]
