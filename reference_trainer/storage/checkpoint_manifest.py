"""The manifest of a checkpoint: what it is of, and the size and SHA-256 of every file beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reference_trainer.errors import CheckpointError
from reference_trainer.storage.retention import Best

__all__ = ["FORMAT", "MANIFEST", "FileEntry", "Manifest", "parsed_manifest", "rank_file", "sealed"]

FORMAT, MANIFEST = "reference-trainer/checkpoint/1", "manifest.json"


def rank_file(rank: int) -> str:
    """Return the name of the file with the tensors of a rank."""
    return f"rank-{rank:05d}.safetensors"


class FileEntry(BaseModel):
    """A file of a checkpoint, as it was written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    size: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """What a checkpoint is of.

    strategy: how the model is divided among the ranks. best: of the run up to this step. conditions: what a run that
    resumes must have in common with the one that saved. state: everything else that is restored and is not a tensor.
    files: by name; filled in when the checkpoint is saved. sha256: of all other fields; filled in by `sealed`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: str = FORMAT
    run_id: str
    step: int = Field(ge=0)
    world_size: int = Field(default=1, ge=1)
    strategy: str = "one process"
    best: Best | None = None
    conditions: dict[str, Any]
    state: dict[str, Any]
    files: dict[str, FileEntry] = {}
    sha256: str = ""


def sealed(manifest: Manifest) -> Manifest:
    """Return the manifest with its digest, by which a changed number in it is noticed."""
    return manifest.model_copy(update={"sha256": _digest(manifest)})


def parsed_manifest(path: Path) -> Manifest:
    """Return the manifest in the directory `path`. Raise `CheckpointError` if it is not one of this version."""
    try:
        content = (path / MANIFEST).read_bytes()
        raw = json.loads(content, parse_constant=_refuse_constant)
    except OSError as error:
        raise CheckpointError(f"cannot read {path / MANIFEST}: {error.strerror}; expected a checkpoint") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / MANIFEST} is not JSON: {error}") from error
    version = raw.get("format") if isinstance(raw, dict) else None
    if version != FORMAT:
        raise CheckpointError(f"{path / MANIFEST} has format {version!r}; expected a checkpoint, with {FORMAT!r}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CheckpointError(f"{path / MANIFEST}: invalid {where}: {first['msg']}") from error
    if _canonical(manifest.model_dump()) != _canonical(raw):  # pydantic fills in defaults
        raise CheckpointError(f"{path / MANIFEST} has a missing or unknown field")
    if _digest(manifest) != manifest.sha256:
        raise CheckpointError(f"{path / MANIFEST} was changed: its SHA-256 is {_digest(manifest)}")
    return manifest


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(_canonical(manifest.model_dump(exclude={"sha256"})).encode()).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
