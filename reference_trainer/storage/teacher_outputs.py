"""Store outputs of a teacher in memory-mapped shards of consecutive rows, with a manifest of the digests of all shards.

A shard is a safetensors file with values of the scored positions of its rows:

- `ends`, int64 [R]: the number of scored positions up to the end of each row;
- `labels`, int32 [N];
- either `logits`, floating [N, V], or, for the K most probable tokens, `logits` [N, K], `tokens`, int32 [N, K], and
  `rest`, floating [N], as in `distillation.protocols.TopK`.

Shape letters: R rows of a shard, N scored positions, V vocabulary, K kept tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from reference_trainer.errors import ModelFileError, similar_path
from reference_trainer.storage.files import atomic_write, file_digest, sync

FORMAT, MANIFEST = "reference-trainer/teacher-outputs/1", "manifest.json"
HINT = "expected a directory that `reference-trainer precompute` has written"


class Shard(BaseModel):
    """The size in bytes and the digest of a shard when it was written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    size: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """The manifest of stored outputs.

    Attributes:
        format: The name of this format.
        identity: Values of the writing run that a reading run must have too; the key in the file is `of`.
        teacher_sha256: The result of `Run.teacher_digest`.
        vocab_size: The number of tokens that have a logit.
        top_k: The number of tokens kept per position; None for all.
        temperature: The temperature of `rest`; None if all tokens are kept.
        rows: The number of examples of the data.
        rows_per_shard: The number of rows of a shard; the last shard may have fewer.
        made_with: Other values that the exact bits of the outputs depend on.
        shards: The files in order; set by `publish`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    format: str = FORMAT
    identity: dict[str, object] = Field(validation_alias="of", serialization_alias="of")
    teacher_sha256: str
    vocab_size: int = Field(ge=1)
    top_k: int | None = Field(ge=1)
    temperature: float | None
    rows: int = Field(ge=0)
    rows_per_shard: int = Field(ge=1)
    made_with: dict[str, object]
    shards: tuple[Shard, ...] = Field(default=(), strict=False)

    @property
    def shard_count(self) -> int:
        """Return the number of shards."""
        return -(-self.rows // self.rows_per_shard)  # rounded up

    def text(self) -> str:
        """Return the text of the manifest file."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, sort_keys=True) + "\n"


def shard_name(index: int) -> str:
    """Return the name of shard `index`, from 0."""
    return f"outputs-{index:05d}.safetensors"


def write_shard(path: Path, rows: Sequence[Mapping[str, Tensor]]) -> None:
    """Write a shard atomically; each row has its tensors by name, without `ends`."""
    counts_R = torch.tensor([len(row["labels"]) for row in rows], dtype=torch.int64, device="cpu")
    tensors = {name: torch.cat([row[name].cpu() for row in rows]) for name in rows[0]}
    content = save({**tensors, "ends": counts_R.cumsum(0)})
    atomic_write(path, lambda partial: partial.write_bytes(content))


def publish(staging: Path, directory: Path, manifest: Manifest) -> None:
    """Write the manifest beside the shards in `staging`, then rename `staging` to `directory`.

    Raise `OSError` if a file cannot be written, a shard is missing, or `directory` is not empty.
    """
    paths = [staging / shard_name(index) for index in range(manifest.shard_count)]
    shards = tuple(Shard(size=file.stat().st_size, sha256=file_digest(file)) for file in paths)
    text = manifest.model_copy(update={"shards": shards}).text()
    atomic_write(staging / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))
    staging.rename(directory)
    sync(directory.parent)


class SavedOutputs:
    """Stored outputs in a directory.

    The constructor raises `ModelFileError` if the manifest is invalid, or a file is missing or has another size. The
    digest of a shard is checked when one of its rows is read for the first time.

    Attributes:
        path: The directory.
        manifest: The manifest.
        sha256: The digest of the manifest file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = (path / MANIFEST).read_bytes()
            self.manifest = Manifest.model_validate_json(content)
            sizes = [(path / shard_name(index)).stat().st_size for index in range(self.manifest.shard_count)]
        except OSError as error:
            raise ModelFileError(
                f"cannot read {error.filename}: {error.strerror}{similar_path(path)}; {HINT}"
            ) from error
        except ValidationError as error:
            raise ModelFileError(f"{path / MANIFEST} is invalid: {error.errors()[0]['msg']}; {HINT}") from error
        if self.manifest.format != FORMAT:
            raise ModelFileError(f"{path / MANIFEST} has format {self.manifest.format!r}; expected {FORMAT!r}")
        if sizes != [shard.size for shard in self.manifest.shards]:
            raise ModelFileError(f"{path}: the sizes of the files differ from {MANIFEST}; compute the outputs again")
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._shards: dict[int, _MappedShard] = {}

    def row(self, number: int) -> dict[str, Tensor]:
        """Return the tensors of the scored positions of a row by name, without `ends`, on the CPU.

        The caller must not change the tensors. Raise `ModelFileError` if the row does not exist, or its shard was
        changed or cannot be read.
        """
        if not 0 <= number < self.manifest.rows:
            raise ModelFileError(f"{self.path} has no row {number}: {self.manifest.rows} rows were written")
        index, place = divmod(number, self.manifest.rows_per_shard)
        if index not in self._shards:
            self._shards[index] = _MappedShard(self.path / shard_name(index), self.manifest.shards[index].sha256)
        return self._shards[index].row(place)

    @cached_property
    def shapes(self) -> dict[str, tuple[torch.dtype, list[int]]]:
        """Return dtype and shape of each tensor of a row, without its first axis."""
        return {name: (tensor.dtype, list(tensor.shape[1:])) for name, tensor in self.row(0).items()}


class _MappedShard:
    """A shard whose rows are slices of a mapped file."""

    def __init__(self, path: Path, sha256: str) -> None:
        try:
            digest = file_digest(path)
            if digest != sha256:
                raise ModelFileError(f"{path} has the SHA-256 {digest}; expected {sha256}")
            file: Any = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise ModelFileError(f"cannot read {path}: {error}") from error
        self._ends = [0, *file.get_tensor("ends").tolist()]
        self._slices = {name: file.get_slice(name) for name in sorted(set(file.keys()) - {"ends"})}

    def row(self, place: int) -> dict[str, Tensor]:
        """Return the tensors of a row by its number in the shard."""
        begin, end = self._ends[place], self._ends[place + 1]
        return {name: tensors[begin:end] for name, tensors in self._slices.items()}
