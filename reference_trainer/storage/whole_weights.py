"""Read the whole weights of a model, or of a checkpoint that any number of ranks saved."""

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
    """The weights and buffers of a checkpoint.

    Attributes:
        path: The directory.
        manifest: The manifest.
        files: The tensors of every file by name, in memory or stored, in the order of ranks.
    """

    path: Path
    manifest: Manifest
    files: Sequence[NamedTensors]

    def has_module(self, module: str) -> bool:
        """Return whether the checkpoint has tensors of the module of this name, such as "student"."""
        return any(name.startswith(f"{module}.") for name in self.files[0])

    def whole_tensors(self, module: str, like: Mapping[str, Tensor]) -> dict[str, Tensor | StoredTensor]:
        """Return the whole tensors of a module by name. like: tensors of the same names and whole shapes.

        Shards are joined in the order of ranks. A tensor that is not divided, such as a buffer, or is not in `like` is
        taken from rank 0. Raise `CheckpointError` for shards that do not belong together.
        """
        saved = {name.removeprefix(f"{module}."): name for name in self.files[0] if name.startswith(f"{module}.")}
        return {name: self._whole(full, like.get(name)) for name, full in saved.items()}

    def load_into(self, name: str, module: nn.Module) -> None:
        """Load the tensors of the module of this name into `module`, which is not divided among ranks.

        A skeleton loads them when it is divided. Raise `CheckpointError`, before anything is changed, for a tensor
        that is missing, unknown or of another shape or dtype.
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
        # Tensors of a skeleton have no memory yet; `load_shards` reads them.
        set_weights(module, {key: saved[key] for key, tensor in state.items() if tensor.is_meta})

    def _whole(self, name: str, like: Tensor | None) -> Tensor | StoredTensor:
        """Return the whole tensor of this name, joined from the shards of all ranks."""
        parts = [file[name] for file in self.files]
        # Every rank has the whole of a tensor that is not divided.
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

    Raise `CheckpointError` as `read_checkpoint` does, and if its files have tensors of different names.
    """
    checkpoints = read_every_file(path)
    return _saved(path, checkpoints[0].manifest, [checkpoint.tensors for checkpoint in checkpoints])


def map_weights(path: Path, once: Callable[[Callable[[], object]], object]) -> SavedWeights:
    """Return the weights of the checkpoint at `path`; a tensor is read when it is indexed. Raise as `read_weights`.

    Args:
        path: The checkpoint.
        once: Calls its argument in one process of each machine; the argument compares the files with their digests.
    """
    manifest = read_manifest(path)

    def check() -> bool:
        check_files(path, manifest)
        return True

    once(check)
    try:
        files = [weight_files([path / name]) for name in sorted(manifest.files)]
    except SafetensorError as error:
        raise CheckpointError(f"{path} has a file that is not a safetensors file: {error}") from error
    return _saved(path, manifest, files)


def _saved(path: Path, manifest: Manifest, tensors: Sequence[NamedTensors]) -> SavedWeights:
    """Return the weights without the tensors of the optimizer."""
    files = [{name: tensor for name, tensor in file.items() if not name.startswith("optimizer.")} for file in tensors]
    if any(file.keys() != files[0].keys() for file in files):
        raise CheckpointError(f"{path}: its files have tensors of different names; expected shards of one model")
    return SavedWeights(path=path, manifest=manifest, files=files)


def decoder_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of the decoder in a directory. Raise `ModelFileError` if it is damaged or another model."""
    verify_manifest(path)
    weights: dict[str, Tensor] = load_decoder(path).state_dict()
    return weights


def read_model(
    path: Path,
    load: Callable[[Path], NamedTensors] = decoder_weights,
    once: Callable[[Callable[[], str]], object] = lambda digest: digest(),
) -> SavedWeights:
    """Return the weights of the model at `path`, read by `load`, in the form of a checkpoint's student.

    The step and the digest are taken from the manifest. Without a manifest, as for a downloaded model, the step is 0,
    and `once` is called with a function that computes the digest of the weights. Raise `ModelFileError` for a manifest
    without a step, and the errors of `load`.
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

    Tensors are read, or copied to the CPU, one at a time.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content: Any = tensor[...].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(content)
    return digest.hexdigest()


def _step(path: Path, content: bytes) -> int:
    """Return the step in a manifest: of an exported checkpoint, or of a trained student."""
    manifest = json.loads(content)
    try:
        return int(manifest["step"] if "step" in manifest else manifest["result"]["steps_completed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path / MANIFEST} names no step; expected the model of a student") from error
