"""Small checkpoints, what is found of them afterwards, and manifests that are changed together with their digest."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from falsifiers.support.runs import scratch
from reference_trainer.storage.checkpoints import Manifest, read_checkpoint, saved_steps
from reference_trainer.storage.retention import Best, checkpoint_name

RUN = "a[b]*"
RANK = "rank-00000.safetensors"


def manifest(step: int, best: int | None = None, run: str = RUN) -> Manifest:
    """Return a manifest without files; a best has a score of 0.5."""
    of_best = None if best is None else Best(step=best, score=0.5)
    return Manifest(run_id=run, step=step, best=of_best, conditions={"seed": step}, state={"loss": 0.5})


def tensors(step: int) -> dict[str, Tensor]:
    """Return the tensors of a step: weights, and a scalar."""
    return {"w": torch.arange(6.0).reshape(2, 3) + step, "step": torch.tensor(float(step))}


@contextmanager
def place(*steps: int) -> Iterator[Path]:
    """A directory with checkpoints of these steps, saved by the trainer itself."""
    from reference_trainer.storage.checkpoints import save_checkpoint

    with scratch() as root:
        directory = root / "checkpoints"
        for step in steps:
            save_checkpoint(directory, manifest(step), tensors(step))
        yield directory


def assert_whole(directory: Path, expected: list[list[int]], when: str) -> None:
    """Assert that the saved steps are one of the lists `expected`, and that each of them is read as it was saved."""
    steps = saved_steps(directory, RUN)
    assert steps in expected, f"{when}, the checkpoints are {steps}; expected one of {expected}"
    for step in steps:
        read = read_checkpoint(directory / checkpoint_name(RUN, step))
        assert_same(f"{when}, step {step}", read.tensors, tensors(step))


def assert_same(when: str, seen: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Assert equal names, shapes, dtypes and bits."""
    assert seen.keys() == expected.keys(), f"{when}: the tensors are {sorted(seen)}; expected {sorted(expected)}"
    for name, wanted in expected.items():
        got = seen[name]
        kinds = (got.dtype, got.shape), (wanted.dtype, wanted.shape)
        assert kinds[0] == kinds[1], f"{when}: {name} is {kinds[0]}; expected {kinds[1]}"
        assert _bits(got) == _bits(wanted), f"{when}: {name} is {got}; expected {wanted}"


def _bits(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist())


def names(directory: Path) -> list[str]:
    """Return the names in a directory, sorted; none if it does not exist."""
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def contents(directory: Path) -> dict[Path, bytes]:
    """Return the content of every file below a directory, by path."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest at `path`, and its digest with it."""
    tree = json.loads(path.read_text())
    change(tree)
    rest = {name: value for name, value in tree.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**tree, **({"sha256": digest} if "sha256" in tree else {})}))
