"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any

from reference_trainer.config.place import Place


def alone_without_a_size(original: Any, environment: Any) -> Any:
    """Return the place of one process where no world size is given."""
    return original(environment) if "WORLD_SIZE" in environment else Place()


def first_gpu(original: Any, name: str, place: Place) -> str:
    """Return the device of the first rank."""
    return str(original(name, Place(rank=place.rank, world_size=place.world_size, local_rank=0)))
