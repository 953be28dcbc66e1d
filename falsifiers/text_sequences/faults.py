"""Faults of texts, documents, sequences and their order, as wrong versions of public functions."""

import hashlib
from dataclasses import replace
from typing import Any

import torch

_SHARED = torch.Generator().manual_seed(0)


def order_of_the_process(seed: int, epoch: int, count: int) -> Any:
    return torch.randperm(count)


def order_of_one_generator(seed: int, epoch: int, count: int) -> Any:
    return torch.randperm(count, generator=_SHARED)


def every_epoch_alike(original: Any, seed: int, epoch: int, count: int) -> Any:
    return original(seed, 1, count)


def seed_plus_epoch(original: Any, seed: int, epoch: int, count: int) -> Any:
    return original(seed + epoch, 1, count)


def grouping_ignored(original: Any, seed: int, epoch: int, groups: Any) -> Any:
    from reference_trainer.data.text import epoch_order

    return epoch_order(seed, epoch, len(groups.lengths))


def lengths_in_one_order(original: Any, seed: int, epoch: int, groups: Any) -> Any:
    return original(seed, 1, groups)


def shortest_rows_last(original: Any, seed: int, epoch: int, groups: Any) -> Any:
    return groups.lengths.argsort(descending=True)


def sequences_do_not_overlap(original: Any, sequences: Any, order: Any, position: int) -> Any:
    batch = original(sequences, order, position)
    chosen = order[(position - 1) * sequences.batch_size :][: len(batch.tokens)].tolist()
    starts = [min(k * sequences.length, len(sequences.bytes_N) - sequences.length) for k in chosen]
    rows = torch.stack([sequences.bytes_N[start : start + sequences.length] for start in starts]).to(batch.tokens)
    return replace(batch, tokens=rows, labels=rows)


def labels_shifted_beforehand(original: Any, sequences: Any, order: Any, position: int) -> Any:
    batch = original(sequences, order, position)
    return replace(batch, labels=batch.labels.roll(-1, 1))


def ranks_read_the_same(original: Any, dealt: Any, epoch: int, position: int) -> Any:
    return original(replace(dealt, rank=0, world_size=1), epoch, position)


def last_round_dropped(original: Any, dealt: Any) -> int:
    return dealt.sequences.batches // dealt.world_size


def filler_is_scored(original: Any, dealt: Any, epoch: int, position: int) -> Any:
    batch = original(dealt, epoch, position)
    return replace(batch, labels=batch.tokens)


def separator_dropped(original: Any, bytes_N: Any, separator: str) -> Any:
    size = len(separator.encode())
    documents = original(bytes_N, separator)
    kept = [document.tokens[:-size] if _ends(document, separator) else document.tokens for document in documents]
    return [replace(documents[0], tokens=tokens) for tokens in kept if len(tokens)]


def _ends(document: Any, separator: str) -> bool:
    return bytes(document.tokens.tolist()).endswith(separator.encode())


def digest_of_the_name(original: Any, path: Any, length: int) -> Any:
    return replace(original(path, length), digest=hashlib.sha256(str(path).encode()).hexdigest())


def first_documents_repeated(original: Any, documents: Any, **named: Any) -> Any:
    from reference_trainer.data.documents import PACKED_TOGETHER

    rows = original(documents, **named)
    return replace(rows, order=[number % PACKED_TOGETHER for number in rows.order])
