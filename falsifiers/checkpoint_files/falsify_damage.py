"""Attacks on the reading of damaged checkpoints. The subject is `storage.checkpoint_files`, or has its names."""

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import RANK, RUN, assert_same, edited, names, place, tensors
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import flip
from reference_trainer.storage.checkpoint_manifest import MANIFEST
from reference_trainer.storage.retention import checkpoint_name


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edited(path / MANIFEST, change)


def _set(*keys: str, value: Any) -> Callable[[Path], None]:
    def change(tree: dict[str, Any]) -> None:
        for key in keys[:-1]:
            tree = tree[key]
        tree[keys[-1]] = value

    return lambda path: _edit(path, change)


def _forged(path: Path, content: bytes) -> None:
    """Replace the tensors, and their size and digest in the manifest."""
    (path / RANK).write_bytes(content)
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _set("files", RANK, value=entry)(path)


class Planted:
    """An object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def _renamed(path: Path) -> None:
    shutil.copytree(path, path.with_name("copy"))
    shutil.rmtree(path)
    path.with_name("copy").rename(path)
    _set("step", value=7)(path)


def _swapped(path: Path) -> None:
    shutil.copy(path.with_name(checkpoint_name(RUN, 1)) / RANK, path / RANK)


def _with_another_loss(path: Path) -> None:
    text = (path / MANIFEST).read_text()
    assert '"loss": 0.5' in text, f"the manifest is {text}"
    (path / MANIFEST).write_text(text.replace('"loss": 0.5', '"loss": 0.4'))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no directory": shutil.rmtree,
    "no manifest": lambda p: (p / MANIFEST).unlink(),
    "no tensors": lambda p: (p / RANK).unlink(),
    "tensors cut": lambda p: os.truncate(p / RANK, (p / RANK).stat().st_size - 1),
    "a flipped bit in the last tensor": lambda p: flip(p / RANK),
    "tensors of another step": _swapped,
    "another file": lambda p: (p / "notes").touch(),
    "a manifest of another step": _renamed,
    "a manifest of another run": _set("run_id", value="other"),
    "a future version": _set("format", value="reference-trainer/checkpoint/2"),
    "a manifest cut": lambda p: os.truncate(p / MANIFEST, 40),
    "a flipped digit in the manifest": _with_another_loss,
    "a missing field": lambda p: _edit(p, lambda tree: tree.pop("world_size")),
    "files of two ranks of three": lambda p: _two_of_three(p),
    "an object in place of tensors": lambda p: _forged(p, pickle.dumps(Planted(p.parent / "executed"))),
    "text in place of tensors": lambda p: _forged(p, b"not tensors at all"),
}


def _two_of_three(path: Path) -> None:
    shutil.copy(path / RANK, path / "rank-00001.safetensors")

    def change(tree: dict[str, Any]) -> None:
        tree["world_size"] = 3
        tree["files"]["rank-00001.safetensors"] = tree["files"][RANK]

    _edit(path, change)


@given(kind=st.sampled_from(list(DAMAGES)))
def falsify_damaged_checkpoint_is_refused(subject: Any, kind: str) -> None:
    with place(1, 2) as directory:
        path = directory / checkpoint_name(RUN, 2)
        for good in (path, directory / f"{RUN}-latest"):
            assert_same(f"{good.name}, undamaged", subject.read_checkpoint(good).tensors, tensors(2))
        DAMAGES[kind](path)
        assert_refused(kind, lambda: subject.read_checkpoint(path), str(path))
        assert "executed" not in names(directory), f"with {kind}, the object was executed"


def falsify_directory_without_manifest_is_no_checkpoint(subject: Any) -> None:
    with place(1) as directory:
        (directory / checkpoint_name(RUN, 9)).mkdir()
        (directory / checkpoint_name(RUN, 8)).touch()
        assert subject.saved_steps(directory, RUN) == [1], f"the steps are {subject.saved_steps(directory, RUN)}"
        found = subject.find_checkpoint(directory, RUN, "latest").name
        assert found == checkpoint_name(RUN, 1), f"the latest is {found}"
        assert subject.saved_steps(directory / "absent", RUN) == [], "a directory that does not exist has steps"
