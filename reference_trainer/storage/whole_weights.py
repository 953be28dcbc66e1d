"""Read the weights of a model, or of a checkpoint that any number of ranks saved; shards are joined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from reference_trainer.errors import CheckpointError, ModelFileError
from reference_trainer.models.loading import NamedTensors, StoredTensor, join_parts, set_weights, weight_files
from reference_trainer.storage.checkpoints import Manifest, check_files, read_every_file, read_manifest
from reference_trainer.storage.export import MANIFEST, load_decoder, verify_manifest
from reference_trainer.storage.snapshot import check_weights

AnyTensor = TypeVar("AnyTensor", Tensor, Tensor | StoredTensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWeights:
    """The weights and buffers of a checkpoint, or of a model as the student of a checkpoint.

    Attributes:
        path: The directory.
        manifest: The manifest.
        files: The tensors by name of every file, in the order of ranks; tensors are in memory or in the file.
    """

    path: Path
    manifest: Manifest
    files: Sequence[NamedTensors]

    def has_module(self, module: str) -> bool:
        """Return whether the checkpoint has tensors of the module of this name, such as "student"."""
        return any(name.startswith(f"{module}.") for name in self.files[0])

    def whole_tensors(self, module: str, like: Mapping[str, Tensor]) -> dict[str, Tensor | StoredTensor]:
        """Return the tensors of a module by name, with the shards of a tensor joined in the order of ranks.

        A tensor that is not divided, such as a buffer, or that `like` does not have, is taken from rank 0.

        Args:
            module: The name of the module, such as "student".
            like: Tensors of the same names, with the shapes of the joined tensors.

        Raises:
            CheckpointError: The shards of a tensor do not fit together.
        """
        saved = {name.removeprefix(f"{module}."): name for name in self.files[0] if name.startswith(f"{module}.")}
        return {name: self._join_shards(full_name, like.get(name)) for name, full_name in saved.items()}

    def load_into(self, name: str, module: nn.Module) -> None:
        """Load the saved tensors of the module of this name into `module`, which is not divided among ranks.

        A skeleton gets references to the tensors, and loads them when it is divided. Raise `CheckpointError`, before
        anything is changed, for a tensor that is missing, unknown or of another shape or dtype.
        """
        state: Mapping[str, Tensor] = module.state_dict()
        saved = self.whole_tensors(name, state)
        try:
            check_weights(_prefixed(name, saved), _prefixed(name, state))
        except CheckpointError as error:
            raise CheckpointError(f"{self.path} does not fit the {name} of this run: {error}") from error
        with torch.no_grad():
            for key, tensor in state.items():
                if not tensor.is_meta:
                    tensor.copy_(saved[key][...])
        # Tensors of a skeleton have no memory yet; `load_shards` will read them.
        set_weights(module, {key: saved[key] for key, tensor in state.items() if tensor.is_meta})

    def _join_shards(self, name: str, like: Tensor | None) -> Tensor | StoredTensor:
        """Return the tensor of this name, joined from the shards of all ranks if it is divided."""
        parts = [file[name] for file in self.files]
        # If a tensor is not divided, every rank has all of it.
        if like is None or all(part.shape == like.shape for part in parts) or len(parts) == 1:
            return parts[0]
        # FSDP2 divides along the first axis, so all other sizes must be equal.
        if len({(part.dtype, part.dim(), part.shape[1:]) for part in parts}) > 1 or not parts[0].dim():
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise CheckpointError(
                f"{self.path}: the ranks have {name} with shapes {shapes}; expected shards of one tensor"
            )
        return join_parts(parts)


def _prefixed(prefix: str, tensors: Mapping[str, AnyTensor]) -> dict[str, AnyTensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def read_weights(path: Path) -> SavedWeights:
    """Return the weights of the checkpoint at `path`.

    Raise `CheckpointError` as `read_checkpoint` does, and if the files of the ranks have tensors of different names.
    """
    checkpoints = read_every_file(path)
    return _saved(path, checkpoints[0].manifest, [checkpoint.tensors for checkpoint in checkpoints])


def map_weights(path: Path, once: Callable[[Callable[[], object]], object]) -> SavedWeights:
    """Return the weights of the checkpoint at `path`, without reading the tensors: a tensor is read when it is indexed.

    Args:
        path: The checkpoint.
        once: A function that calls its argument in one process of each machine. The argument compares the files with
            their digests.

    Raises:
        CheckpointError: As for `read_weights`.
    """
    manifest = read_manifest(path)

    def check() -> bool:
        check_files(path, manifest)
        return True  # a rank sends the result to other ranks, which must not be None

    once(check)
    try:
        files = [weight_files([path / name]) for name in sorted(manifest.files)]
    except SafetensorError as error:
        raise CheckpointError(f"{path} has a file that is not a safetensors file: {error}") from error
    return _saved(path, manifest, files)


def _saved(path: Path, manifest: Manifest, tensors: Sequence[NamedTensors]) -> SavedWeights:
    """Return the weights of a checkpoint: its tensors, except the tensors of the optimizer."""
    files = [{name: tensor for name, tensor in file.items() if not name.startswith("optimizer.")} for file in tensors]
    if any(file.keys() != files[0].keys() for file in files):
        raise CheckpointError(f"{path}: its files have tensors of different names; expected shards of one model")
    return SavedWeights(path=path, manifest=manifest, files=files)


def decoder_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of the decoder in a directory. Raise `ModelFileError` for damaged files or another model."""
    verify_manifest(path)
    weights: dict[str, Tensor] = load_decoder(path).state_dict()
    return weights


def read_model(
    path: Path,
    load: Callable[[Path], NamedTensors] = decoder_weights,
    once: Callable[[Callable[[], str]], object] = lambda digest: digest(),
) -> SavedWeights:
    """Return the weights of the model at `path` in the same form as the student of a checkpoint.

    Step and digest come from the manifest. Without a manifest, as for a downloaded model, the step is 0, and the digest
    is computed from the weights.

    Args:
        path: The directory of the model.
        load: A function that reads the weights.
        once: A function that calls its argument, which computes a digest, in one process of each machine.

    Raises:
        ModelFileError: The manifest is not JSON, or has no step. Errors of `load` are raised too.
    """
    weights = load(path)
    try:
        content = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        step, digest = 0, str(once(partial(tensors_digest, weights)))
    else:
        step, digest = _step(path, content), hashlib.sha256(content).hexdigest()
    manifest = Manifest(run_id="student", step=step, conditions={}, state={}, sha256=digest)
    return SavedWeights(path=path, manifest=manifest, files=[_prefixed("student", weights)])


def tensors_digest(tensors: NamedTensors) -> str:
    """Return the SHA-256, in hexadecimal digits, of the names, dtypes, shapes and bytes of tensors.

    Tensors are read from files, or copied to the CPU, one at a time.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content: Any = tensor[...].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(content)
    return digest.hexdigest()


def _step(path: Path, content: bytes) -> int:
    """Return the step in the manifest of an exported checkpoint or of a trained student."""
    try:
        manifest = json.loads(content)
        return int(manifest["step"] if "step" in manifest else manifest["result"]["steps_completed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path / MANIFEST} names no step; expected the model of a student") from error
