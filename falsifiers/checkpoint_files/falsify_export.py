"""Attacks on the export of a checkpoint as a model. The subject is `pipeline.checkpoint_list`, or has its names."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from falsifiers.checkpoint_files.saved import assert_same, names, place
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import flip
from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import load_teacher
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.export import verify_manifest
from reference_trainer.storage.retention import Best
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
    """A directory with the checkpoints of steps 1, which is the best, and 12, and their students."""
    with place() as directory:
        students = {}
        for step in (1, 12):
            students[step], given_tensors = _trained(step)
            described = {"student": asdict(CONFIG), **state}
            content = Manifest(
                run_id=RUN, step=step, best=Best(step=1, score=0.5), conditions={"seed": 7}, state=described
            )
            save_checkpoint(directory, content, given_tensors)
        yield directory, students


@given(wanted=st.sampled_from([1, 12, "latest", "best"]), inside=st.booleans())
@example(wanted="best", inside=True)
def falsify_checkpoint_is_exported_as_a_teacher(subject: Any, wanted: Any, inside: bool) -> None:
    step = {"latest": 12, "best": 1}.get(wanted, wanted)
    with _saved() as (directory, students):
        before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        out = directory.parent / "model"
        asked = Path(os.path.relpath(directory if inside else directory.parent))
        subject.export_checkpoint(asked, wanted, out)
        verify_manifest(out)
        teacher = load_teacher(out)
        assert teacher.config == CONFIG, f"the model has the shape {teacher.config}"
        assert_same(f"the export of step {step}", teacher.state_dict(), students[step].state_dict())
        content = json.loads((out / "manifest.json").read_text())
        seen = {name: content.get(name) for name in ("step", "conditions")}
        assert seen == {"step": step, "conditions": {"seed": 7}}, f"the manifest of the export has {seen}"
        named = (content["kind"], Path(content["checkpoint"]).is_absolute(), Path(content["checkpoint"]).resolve())
        assert named == ("checkpoint", True, directory.resolve() / f"{RUN}-step{step}"), f"the manifest has {named}"
        after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        assert after == before, "the export changed a file of the checkpoints"
        again = partial(subject.export_checkpoint, asked, wanted, out)
        assert_refused("an export over a model", again, str(out), kind=OutputError)


CASES: dict[str, tuple[dict[str, Any], Callable[[Path], object], str]] = {
    "damaged": ({}, lambda d: flip(d / f"{RUN}-step12" / "rank-00000.safetensors"), "SHA-256"),
    "of another model": ({"student": None}, lambda d: None, "describes no student"),
    "of another width": ({"student": {**asdict(CONFIG), "width": 32}}, lambda d: None, "does not fit"),
}


@given(kind=st.sampled_from(list(CASES)))
def falsify_unfit_checkpoint_is_not_exported(subject: Any, kind: str) -> None:
    state, damage, words = CASES[kind]
    with _saved(**state) as (directory, _):
        damage(directory)
        out = directory.parent / "model"
        call = partial(subject.export_checkpoint, directory, 12, out)
        assert_refused(kind, call, f"{RUN}-step12", words, kind=CheckpointError)
        assert not out.exists(), f"{kind}: a refused export left {names(out)}"
