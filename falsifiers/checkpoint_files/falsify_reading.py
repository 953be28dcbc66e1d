"""Attacks on reading, listing and exporting of checkpoints, undamaged and damaged.

The subject is `storage.checkpoint_files` or `pipeline.checkpoint_list`, or has its names.
"""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from falsifiers.checkpoint_files.saved import RANK, RUN, assert_same, contents, edited, manifest, names, place, tensors
from falsifiers.support.assertions import assert_equal
from falsifiers.support.interruptions import before_operations
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import flip
from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import load_teacher
from reference_trainer.storage.checkpoints import MANIFEST, Manifest, save_checkpoint
from reference_trainer.storage.export import verify_manifest
from reference_trainer.storage.retention import Best, checkpoint_name
from reference_trainer.storage.snapshot import snapshot

Damage = Callable[[Path], object]


def _edit_manifest(**entries: Any) -> Damage:
    """Return a damage that changes entries of the manifest, and updates its digest."""
    return lambda path: edited(path / MANIFEST, lambda tree: tree.update(entries))


def _replace_tensors(content: Callable[[Path], bytes]) -> Damage:
    """Return a damage that replaces the tensors, and updates their size and digest in the manifest."""

    def change(path: Path) -> None:
        replacement = content(path)
        (path / RANK).write_bytes(replacement)
        entry = {"size": len(replacement), "sha256": hashlib.sha256(replacement).hexdigest()}
        _edit_manifest(files={RANK: entry})(path)

    return change


class FileCreator:
    """An object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def _change_loss(path: Path) -> None:
    text = (path / MANIFEST).read_text()
    assert '"loss": 0.5' in text, f"the manifest is {text}; expected the loss 0.5"
    (path / MANIFEST).write_text(text.replace('"loss": 0.5', '"loss": 0.4'))


def _add_second_rank(world_size: int) -> Damage:
    """Return a damage that adds the file of a second rank, and sets the number of ranks in the manifest."""

    def change(path: Path) -> None:
        shutil.copy(path / RANK, path / SECOND)
        edited(path / MANIFEST, lambda tree: tree["files"].update({SECOND: tree["files"][RANK]}))
        _edit_manifest(world_size=world_size)(path)

    return change


def _add_damaged_second_rank(path: Path) -> None:
    _add_second_rank(2)(path)
    flip(path / SECOND)


SECOND = "rank-00001.safetensors"
DAMAGES: dict[str, Damage] = {
    "no directory": shutil.rmtree,
    "no manifest": lambda p: (p / MANIFEST).unlink(),
    "no tensors": lambda p: (p / RANK).unlink(),
    "tensors without the last byte": lambda p: os.truncate(p / RANK, (p / RANK).stat().st_size - 1),
    "a flipped bit in the last tensor": lambda p: flip(p / RANK),
    "tensors of another step": lambda p: shutil.copy(p.with_name(checkpoint_name(RUN, 1)) / RANK, p / RANK),
    "a surplus file": lambda p: (p / "notes").touch(),
    "a manifest of another step": _edit_manifest(step=7),
    "a manifest of another run": _edit_manifest(run_id="other"),
    "a future version": _edit_manifest(format="reference-trainer/checkpoint/2"),
    "the first 40 bytes of a manifest": lambda p: os.truncate(p / MANIFEST, 40),
    "a flipped digit in the manifest": _change_loss,
    "a manifest of nested lists": lambda p: (p / MANIFEST).write_text("[" * 10**6),
    "a missing field": lambda p: edited(p / MANIFEST, lambda tree: tree.pop("world_size")),
    "files of two ranks of three": _add_second_rank(3),
    "a flipped bit in the file of the second rank": _add_damaged_second_rank,
    "an object in place of tensors": _replace_tensors(lambda p: pickle.dumps(FileCreator(p.parent / "executed"))),
    "text in place of tensors": _replace_tensors(lambda p: b"not tensors at all"),
}


@given(kind=st.sampled_from(list(DAMAGES)))
def falsify_damaged_checkpoint_is_refused(subject: Any, kind: str) -> None:
    with place(1, 2) as directory:
        path = directory / checkpoint_name(RUN, 2)
        for undamaged in (path, directory / f"{RUN}-latest"):
            assert_same(f"{undamaged.name}, undamaged", subject.read_checkpoint(undamaged).tensors, tensors(2))
        DAMAGES[kind](path)
        assert_refused(kind, lambda: subject.read_checkpoint(path), str(path), kind=CheckpointError)
        assert "executed" not in names(directory), f"with {kind}, unpickling executed code"


def falsify_directory_without_manifest_is_no_checkpoint(subject: Any) -> None:
    with place(1) as directory:
        (directory / checkpoint_name(RUN, 9)).mkdir()
        (directory / checkpoint_name(RUN, 8)).touch()
        assert_equal("steps, beside an empty directory and a file", subject.saved_steps(directory, RUN), [1])
        latest = subject.find_checkpoint(directory, RUN, "latest").name
        assert_equal("the latest", latest, checkpoint_name(RUN, 1))
        file = directory / checkpoint_name(RUN, 8)
        refused = partial(subject.saved_steps, file, RUN)
        assert_refused("saved_steps of a file", refused, str(file), kind=CheckpointError)
        assert_equal("steps of a directory that does not exist", subject.saved_steps(directory / "absent", RUN), [])


STEPS = (9, 10, 100)
OTHER = "ab"
"""The id of a second run, which the first run's id matches if it is used as a pattern."""
FAULTS: dict[str, tuple[Damage, str]] = {
    "a flipped bit": (lambda p: flip(p / RANK), f"{RANK} has the SHA-256"),
    "a missing file": (lambda p: (p / RANK).unlink(), f"{RANK} is missing"),
    "no manifest": (lambda p: (p / MANIFEST).unlink(), MANIFEST),
    "a broken manifest": (lambda p: (p / MANIFEST).write_text("{"), "is not JSON"),
    "the manifest of another run": (
        lambda p: shutil.copy(p.with_name(checkpoint_name(OTHER, 7)) / MANIFEST, p / MANIFEST),
        "give the directory its old name again",
    ),
}
"""Damages, and words of the fault in the list."""


@given(
    damage=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(list(FAULTS)), max_size=3),
    better=st.sets(st.sampled_from(STEPS)),
    inside=st.booleans(),
)
def falsify_every_checkpoint_is_listed_and_verified(
    subject: Any, damage: dict[int, str], better: set[int], inside: bool
) -> None:
    """better: steps with the best score so far. inside: list the checkpoint directory itself instead of its parent."""

    def best_at(step: int) -> int | None:
        return max((k for k in better if k <= step), default=None)

    with place() as directory:
        for step in STEPS:
            save_checkpoint(directory, manifest(step, best=best_at(step)), tensors(step))
            # The listed time of a checkpoint comes from its manifest.
            os.utime(directory / checkpoint_name(RUN, step) / MANIFEST, (1e9 + step, 1e9 + step))
        save_checkpoint(directory, manifest(7, run=OTHER), tensors(7))
        # Neither a directory that a rewind made, nor a file or a link with the name of a checkpoint is listed.
        (directory / f"{RUN}-rewound-1").mkdir()
        (directory / "file-step3").touch()
        (directory / "link-step3").symlink_to(checkpoint_name(RUN, 9))
        for step, kind in sorted(damage.items()):
            FAULTS[kind][0](directory / checkpoint_name(RUN, step))
        entries = subject.list_checkpoints(directory if inside else directory.parent)
        expected = sorted([(RUN, 9), (RUN, 10), (RUN, 100), (OTHER, 7)])
        assert_equal("listed checkpoints", [(entry.run_id, entry.step) for entry in entries], expected)
        undamaged = [step for step in STEPS if step not in damage]
        best = best_at(undamaged[-1]) if undamaged else None
        for entry, line in zip(entries, subject.table(entries), strict=True):
            _assert_entry(entry, damage.get(entry.step), directory)
            _assert_line(entry, line, best)
        removed = directory / checkpoint_name(RUN, 9)
        if 9 not in damage:  # remove it before the second operation on its files, as a run does that keeps few
            with before_operations(removed, lambda count: shutil.rmtree(removed) if count == 2 else None):
                entries = subject.list_checkpoints(directory)
            steps = [entry.step for entry in entries if entry.run_id == RUN]
            assert_equal("steps in the list, where step 9 is removed meanwhile", steps, [10, 100])


def _assert_entry(entry: Any, kind: str | None, directory: Path) -> None:
    step = f"step {entry.step} with {kind or 'no damage'}"
    assert_equal(f"{step}: path", entry.path, directory / checkpoint_name(entry.run_id, entry.step))
    assert_equal(f"{step}: bytes", entry.size, sum(file.stat().st_size for file in entry.path.iterdir()))
    words = "" if kind is None else FAULTS[kind][1]
    assert bool(entry.fault) == bool(kind) and words in (entry.fault or ""), f"{step}: {entry.fault!r}, not {words!r}"
    if entry.run_id == RUN and kind not in ("no manifest", "a broken manifest", "the manifest of another run"):
        assert_equal(f"{step}: time", entry.saved_at, 1e9 + entry.step)
    assert (entry.saved_at is None) == (kind == "no manifest"), f"{step}: saved_at is {entry.saved_at}"


def _assert_line(entry: Any, line: str, best: int | None) -> None:
    """Assert that a line has the fields of the entry; only undamaged checkpoints are marked as latest or best."""
    words = [entry.path.name, f"{entry.size:,} bytes", f"damaged: {entry.fault}" if entry.fault else "undamaged"]
    words += ["2001-09-09 01:46:49Z"] if entry.saved_at == 1e9 + 9 else []
    words += ["never completed"] if entry.saved_at is None else []
    missing = [word for word in words if word not in line]
    assert not missing, f"the line of step {entry.step} lacks {missing}: {line}"
    marks = {", latest": entry.step in (7, 100), ", best (score 0.5)": entry.step == best}
    for mark, expected in marks.items():
        assert (mark in line) == (expected and entry.fault is None), f"{mark!r} expected {expected} in line {line!r}"


@given(damage=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(["a flipped bit", "no manifest"]), max_size=3))
@example(damage={})
@example(damage={9: "a flipped bit"})
@example(damage=dict.fromkeys(STEPS, "a flipped bit"))
def falsify_command_fails_if_any_checkpoint_is_damaged(subject: Any, damage: dict[int, str]) -> None:
    with place(*STEPS) as directory:
        for step, kind in damage.items():
            FAULTS[kind][0](directory / checkpoint_name(RUN, step))
        result = CliRunner().invoke(subject.main, ["checkpoints", str(directory)])
        case = f"of the steps {list(STEPS)}, {damage or 'none'} damaged"
        assert_equal(f"{case}: the exit code of `checkpoints`", result.exit_code, 1 if damage else 0)


STUDENT = "student"
CONFIG = DecoderConfig(vocab_size=256, layers=1, width=16, heads=1)


@contextmanager
def _exportable(**state: Any) -> Iterator[tuple[Path, dict[int, Decoder]]]:
    """Yield a directory with checkpoints of the steps 1 (the best) and 12, and the student of each step.

    state: entries that replace or extend the state in the manifest.
    """
    with place() as directory:
        students = {step: new_decoder(CONFIG, step) for step in (1, 12)}
        for step, student in students.items():
            modules = {STUDENT: student, "projections": nn.ModuleList([nn.Linear(2, 2)])}
            optimizer = torch.optim.AdamW([p for module in modules.values() for p in module.parameters()])
            torch.stack([p.square().sum() for p in student.parameters()]).sum().backward()
            optimizer.step()
            fields: dict[str, Any] = {"best": Best(step=1, score=0.5), "conditions": {"seed": 7}}
            content = Manifest(run_id=STUDENT, step=step, state={STUDENT: asdict(CONFIG), **state}, **fields)
            save_checkpoint(directory, content, snapshot(modules, optimizer).tensors)
        yield directory, students


@given(selector=st.sampled_from([1, 12, "latest", "best"]), inside=st.booleans())
@example(selector="best", inside=True)
@example(selector="latest", inside=True)
def falsify_checkpoint_is_exported_as_a_teacher(subject: Any, selector: Any, inside: bool) -> None:
    step = {"latest": 12, "best": 1}.get(selector, selector)
    with _exportable() as (directory, students):
        before, out = contents(directory), directory.parent / "model"
        export = partial(
            subject.export_checkpoint, Path(os.path.relpath(directory if inside else directory.parent)), selector, out
        )
        export()
        verify_manifest(out)
        teacher = load_teacher(out)
        assert_equal("the shape of the model", teacher.config, CONFIG)
        assert_same(f"the export of step {step}", teacher.state_dict(), students[step].state_dict())
        content = json.loads((out / "manifest.json").read_text())
        expected = {"step": step, "conditions": {"seed": 7}, "kind": "checkpoint"}
        assert_equal("the manifest of the export", {key: content.get(key) for key in expected}, expected)
        source = Path(content["checkpoint"])
        assert source.is_absolute() and source.samefile(directory / f"{STUDENT}-step{step}"), f"path of step: {source}"
        assert contents(directory) == before, "the export changed a file of the checkpoints"
        model = contents(out)
        assert_refused("an export over a model", export, str(out), kind=OutputError)
        assert contents(out) == model, "a refused export over a model changed a file of the model"


UNFIT: dict[str, tuple[dict[str, Any], Damage, str]] = {
    "damaged": ({}, lambda d: flip(d / f"{STUDENT}-step12" / RANK), "SHA-256"),
    "of another model": ({STUDENT: None}, lambda d: None, "describes no student"),
    "of another width": ({STUDENT: {**asdict(CONFIG), "width": 32}}, lambda d: None, "does not fit"),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_unfit_checkpoint_is_not_exported(subject: Any, kind: str) -> None:
    state, damage, words = UNFIT[kind]
    with _exportable(**state) as (directory, _):
        damage(directory)
        out = directory.parent / "model"
        call = partial(subject.export_checkpoint, directory, 12, out)
        assert_refused(kind, call, f"{STUDENT}-step12", words, kind=CheckpointError)
        assert not out.exists(), f"{kind}: the refused export created {names(out)}"
