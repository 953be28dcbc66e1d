"""Checkpoints of several ranks: each writes a file of its shards, then rank 0 the manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import Tensor

from reference_trainer.storage.checkpoint_manifest import FileEntry, Manifest, rank_file
from reference_trainer.storage.checkpoints import DISK, save_checkpoint, write_tensors

__all__ = ["Agreeing", "save_shards"]

Result = TypeVar("Result")


class Agreeing(Protocol):
    """The ranks that save together; `pipeline.ranks.Ranks` documents the methods."""

    rank: int

    def run_on_all(self, work: Callable[[], Result]) -> Result: ...

    def all_gather_json(self, value: Any) -> list[Any]: ...


def save_shards(
    ranks: Agreeing, directory: Path, manifest: Manifest, tensors: Mapping[str, Tensor], *, keep: int
) -> Path | None:
    """Save a checkpoint with a file of each rank, otherwise as `save_checkpoint`; return its path on rank 0.

    All ranks call this with their own shards. A rank that fails leaves no checkpoint: its error is raised there, and a
    `RankError` with its message on the others, by rank 0's at the latest when they next wait for it.
    """

    def others(partial: Path) -> Mapping[str, FileEntry]:
        ranks.all_gather_json(str(partial))
        ranks.run_on_all(lambda: None)
        entries = ranks.all_gather_json(None)
        return {rank_file(rank): FileEntry.model_validate(entry) for rank, entry in enumerate(entries) if rank}

    if ranks.rank == 0:
        return save_checkpoint(directory, manifest, tensors, keep=keep, others=others)
    partial = Path(ranks.all_gather_json(None)[0])
    path = partial / rank_file(ranks.rank)
    ranks.all_gather_json(ranks.run_on_all(lambda: write_tensors(path, tensors, DISK)).model_dump())
    return None
