"""Attacks on the export of a checkpoint as a model. The subject is `pipeline.checkpoint_list`, or has its names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from falsifiers.checkpoint_files.manifests import edited
from falsifiers.checkpoint_files.saved import assert_same, names, place
from falsifiers.support.oracles import refusal_complaint
from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import load_teacher
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.export import verify_manifest
from reference_trainer.storage.snapshot import snapshot

RUN, OTHER = "student", "other"
CONFIG = DecoderConfig(vocab_size=256, layers=1, width=16, heads=1)


def _trained(seed: int) -> tuple[Decoder, dict[str, Any]]:
    """Return a decoder after a step, and its tensors, with those of projections and optimizer."""
    student = new_decoder(CONFIG, seed)
    modules = {"student": student, "projections": nn.ModuleList([nn.Linear(2, 2)])}
    optimizer = torch.optim.AdamW([each for module in modules.values() for each in module.parameters()])
    sum(each.square().sum() for each in student.parameters()).backward()
    optimizer.step()
    return student, snapshot(modules, optimizer).tensors


@contextmanager
def _saved(**state: Any) -> Iterator[tuple[Path, dict[int, Decoder]]]:
    """A directory with the checkpoints of steps 1 and 12, and their students."""
    with place() as directory:
        students = {}
        for step in (1, 12):
            students[step], given_tensors = _trained(step)
            described = {"student": asdict(CONFIG), **state}
            content = Manifest(run_id=RUN, step=step, conditions={"seed": 7}, state=described)
            save_checkpoint(directory, content, given_tensors)
        yield directory, students


@given(step=st.sampled_from([1, 12]), inside=st.booleans())
def falsify_checkpoint_is_exported_as_a_teacher(subject: Any, step: int, inside: bool) -> None:
    """The model of that step is loaded as a teacher, in every bit, and the checkpoint stays as it is."""
    with _saved() as (directory, students):
        before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        out = directory.parent / "model"
        subject.export_checkpoint(directory if inside else directory.parent, step, out)
        verify_manifest(out)
        teacher = load_teacher(out)
        assert teacher.config == CONFIG, f"the model has the shape {teacher.config}"
        assert_same(f"the export of step {step}", teacher.state_dict(), students[step].state_dict())
        content = json.loads((out / "manifest.json").read_text())
        seen = {name: content.get(name) for name in ("step", "conditions")}
        assert seen == {"step": step, "conditions": {"seed": 7}}, f"the manifest of the export has {seen}"
        assert content["checkpoint"].endswith(f"checkpoints/{RUN}-step{step}"), f"it names {content['checkpoint']}"
        after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        assert after == before, "the export changed a file of the checkpoints"


def _flip(directory: Path) -> None:
    path = directory / f"{RUN}-step12" / "rank-00000.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


CASES: dict[str, tuple[dict[str, Any], Callable[[Path], object], str]] = {
    "damaged": ({}, _flip, "SHA-256"),
    "of another model": ({"student": None}, lambda d: None, "describes no student"),
    "of unknown fields": ({"student": {**asdict(CONFIG), "more": 1}}, lambda d: None, "does not fit"),
    "of another width": ({"student": {**asdict(CONFIG), "width": 32}}, lambda d: None, "does not fit"),
    "of a huge width": ({"student": {**asdict(CONFIG), "width": 2**40}}, lambda d: None, "does not fit"),
    "of no heads": ({"student": {**asdict(CONFIG), "heads": 0}}, lambda d: None, "does not fit"),
    "of more layers": ({"student": {**asdict(CONFIG), "layers": 2}}, lambda d: None, "does not fit"),
}


@given(kind=st.sampled_from(list(CASES)))
def falsify_unfit_checkpoint_is_not_exported(subject: Any, kind: str) -> None:
    """CheckpointError with the path, and no directory is created."""
    state, damage, words = CASES[kind]
    with _saved(**state) as (directory, _):
        damage(directory)
        out = directory.parent / "model"
        call = partial(subject.export_checkpoint, directory, 12, out)
        complaint = refusal_complaint(kind, call, f"{RUN}-step12", words, kind=CheckpointError)
        assert complaint is None, complaint
        assert not out.exists(), f"{kind}: a refused export left {names(out)}"


def falsify_missing_step_and_used_directory_are_refused(subject: Any) -> None:
    """CheckpointError for a step that is not there or has several files, OutputError for a directory in use."""
    with _saved() as (directory, _):
        out = directory.parent / "model"
        complaint = refusal_complaint(
            "step 2", lambda: subject.export_checkpoint(directory, 2, out), f"{RUN}-step2", kind=CheckpointError
        )
        assert complaint is None, complaint
        _two_ranks(directory)
        complaint = refusal_complaint(
            "two ranks", lambda: subject.export_checkpoint(directory, 12, out), "2 ranks", kind=CheckpointError
        )
        assert complaint is None, complaint
        out.mkdir()
        (out / "file").touch()
        complaint = refusal_complaint(
            "a used directory", lambda: subject.export_checkpoint(directory, 1, out), str(out), kind=OutputError
        )
        assert complaint is None, complaint
        assert names(out) == ["file"], f"a refused export left {names(out)}"


def _two_ranks(directory: Path) -> None:
    """Make a checkpoint of two ranks of that of step 12."""
    path = directory / f"{RUN}-step12"
    (path / "rank-00001.safetensors").write_bytes((path / "rank-00000.safetensors").read_bytes())

    def change(content: dict[str, Any]) -> None:
        content["files"]["rank-00001.safetensors"] = content["files"]["rank-00000.safetensors"]
        content["world_size"] = 2

    edited(path / "manifest.json", change)
