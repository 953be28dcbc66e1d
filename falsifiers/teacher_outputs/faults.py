"""Faulty teachers with known most probable tokens, faulty outputs and faulty digests, for mutants."""

import math
import shutil
from dataclasses import replace
from typing import Any

import torch


def tail_dropped(original: Any, logits: Any, k: int, temperature: float) -> Any:
    kept = original(logits, k, temperature)
    return replace(kept, rest=torch.full_like(kept.rest, -torch.inf))


def rest_at_temperature_one(original: Any, logits: Any, k: int, temperature: float) -> Any:
    return original(logits, k, 1.0)


def both_renormalised(original: Any, top_k: Any, student: Any, temperature: float) -> Any:
    tokens = top_k.tokens.long()
    of_student = torch.logsumexp((student / temperature).gather(-1, tokens), -1, keepdim=True)
    of_teacher = torch.logsumexp(top_k.logits / temperature, -1, keepdim=True)
    kept = top_k.logits + (of_student - of_teacher) * temperature
    return student.clone().scatter_(-1, tokens, kept.to(student.dtype))


def shared_over_the_vocabulary(original: Any, top_k: Any, student: Any, temperature: float) -> Any:
    complete, tokens, V = original(top_k, student, temperature), top_k.tokens.long(), student.shape[-1]
    is_banned = student.scatter(-1, tokens, -torch.inf).amax(-1, keepdim=True) == -torch.inf
    is_shared = is_banned.expand_as(student).scatter(-1, tokens, False)
    return complete + temperature * math.log(max(V - tokens.shape[-1], 1) / V) * is_shared


def first_chunk_again(original: Any, head: Any, places: Any) -> Any:
    first = None
    for chunk in original(head, places):
        first = chunk.clone() if first is None else first
        yield first[: len(chunk)]


def twice_the_room(original: Any, path: Any, needed: int) -> None:
    original(path, 2 * needed)


def every_metric(original: Any, *arguments: Any, all_logits: bool = True, **options: Any) -> Any:
    return original(*arguments, **options)


def outputs_by_position(original: Any, saved: Any) -> Any:
    teacher = original(saved)
    name = "logits" if saved.manifest.top_k is None else "top_k"
    read = getattr(teacher, name)

    def in_order(batch: Any) -> Any:
        return read(replace(batch, examples=torch.arange(len(batch.tokens)), labels=_labels(saved, batch)))

    setattr(teacher, name, in_order)
    return teacher


def _labels(saved: Any, batch: Any) -> Any:
    labels = torch.full_like(batch.labels, -100)
    for b in range(len(labels)):
        row = saved.row(b)["labels"].long()
        labels[b, 1 : 1 + len(row)] = row
    return labels


def not_compared(saved: Any, *arguments: Any) -> None:
    """Use outputs of any data and teacher."""


def published_first(original: Any, staging: Any, directory: Any, manifest: Any, **options: Any) -> None:
    directory.mkdir()
    for path in staging.iterdir():
        shutil.copy(path, directory / path.name)
    original(staging, directory.with_name("unused"), manifest, **options)


def always_taught(self: Any, first: int, last: int, total: int) -> bool:
    return True


def taught_by_the_first_step(original: Any, self: Any, first: int, last: int, total: int) -> bool:
    return bool(original(self, first, first, total))


def serialised(self: Any) -> str:
    from reference_trainer.storage.export import weights_digest  # a mutant of `storage` loads this module before it

    return weights_digest(self.teacher)


def gathered_for_ever(module: Any, device: Any, dtype: str = "float32") -> Any:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(module, reshard_after_forward=False)
