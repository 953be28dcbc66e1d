"""Attacks on what a manifest says of a run, and on where that ran. The subject is that of `falsify_distill_ends`."""

from __future__ import annotations

import hashlib
import io
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.optimizer import register_optimizer_step_post_hook

from falsifiers.falsify_distill_ends import found, refused, run, small

INSTANTS = st.sampled_from([0.0, 1e-9, 1.5e-9, 0.25, 8.0])


@contextmanager
def _optimizers() -> Iterator[list[dict[str, Any]]]:
    """What each optimizer that steps is called, and the constants it steps with."""
    seen: list[dict[str, Any]] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        (group,) = optimizer.param_groups
        constants = {name: group[name] for name in ("weight_decay", "betas", "eps")}
        seen.append({"name": type(optimizer).__name__, **constants, "betas": list(constants["betas"])})

    hook = register_optimizer_step_post_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


def _in(subject: Any, elapsed_s: float) -> Any:
    """The student's training takes so long, whatever the clock says."""
    really = subject.train
    return mock.patch.object(subject, "train", lambda *all_, **k: replace(really(*all_, **k), elapsed_s=elapsed_s))


@given(elapsed_s=INSTANTS, seed=st.integers(0, 9), epochs=st.integers(1, 2))
def falsify_a_manifest_tells_the_run(subject: Any, elapsed_s: float, seed: int, epochs: int) -> None:
    """Each entry, and no other: settings, text, teacher, optimizer, device, numbers, as seen from outside."""
    with tempfile.TemporaryDirectory() as name, _optimizers() as stepped, _in(subject, elapsed_s):
        settings = small(Path(name), subject, out=Path(name, "out"), seed=seed, epochs=epochs)
        result = run(subject, settings)
        manifest = json.loads((settings.out / "manifest.json").read_text())
        (teacher,) = settings.teacher_cache.glob("*/model.safetensors")
        expected = {
            "schema": "reference-trainer/manifest/1",
            "settings": {each.name: _plain(getattr(settings, each.name)) for each in fields(settings)},
            "seed": seed,
            "data_sha256": hashlib.sha256(bytes(range(100))).hexdigest(),
            "teacher_sha256": hashlib.sha256(teacher.read_bytes()).hexdigest(),
            "optimizer": stepped[-1],
            "device": "cpu",
        }
    assert {name: manifest.get(name) for name in expected} == expected, f"{manifest}; expected {expected}"
    others = {"versions", "result", "held_back", "sha256"}
    assert set(manifest) - set(expected) == others, f"entries are {sorted(manifest)}; expected {sorted(others)} too"
    _assert_numbers(manifest, result, elapsed_s)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _assert_numbers(manifest: dict[str, Any], result: Any, elapsed_s: float) -> None:
    train, told = result.train, dict(manifest["result"])
    shortest = max(elapsed_s, 1e-9)  # a run in no time counts as one of a nanosecond
    for what, count in (("steps", train.steps_completed), ("tokens", train.tokens)):
        seen = told.pop(f"throughput_{what}_per_s", None)
        assert seen is not None and math.isclose(seen, count / shortest, rel_tol=1e-9), (
            f"{count} {what} in {elapsed_s} s are {seen!r} per second; expected {count / shortest}"
        )
    assert told == asdict(train), f"the manifest's result is {told}; the run's {asdict(train)}"
    held_back = {name: {"nats": each.sum, "tokens": each.count} for name, each in result.held_back.items()}
    assert manifest["held_back"] == held_back, f"held back are {manifest['held_back']}; measured were {held_back}"


def falsify_auto_is_cuda_where_there_is_one(subject: Any) -> None:
    """And the CPU elsewhere, whatever else the machine could do."""
    for there, expected in ((False, "cpu"), (True, "cuda")):
        seen = _place_of_a_run(subject, there)
        assert seen == expected, f"where torch says that CUDA is {'' if there else 'not '}there, auto is {seen}"


def _place_of_a_run(subject: Any, there: bool) -> str:
    """The kind of device that a run is on which may choose, or which it is refused for."""
    with tempfile.TemporaryDirectory() as name, mock.patch.object(torch.cuda, "is_available", lambda: there):
        settings = small(Path(name), subject, out=Path(name, "out"), device="auto")
        try:
            return str(next(run(subject, settings).student.parameters()).device.type)
        except ValueError as refusal:
            return str(refusal).removeprefix("device is '").partition("'")[0]


def falsify_a_device_that_is_not_there_is_refused(subject: Any) -> None:
    """By name and before anything is made, with what helps."""
    with tempfile.TemporaryDirectory() as name:
        settings = small(Path(name), subject, out=Path(name, "out"), device="cuda:999")
        before = found(Path(name))
        said = refused(subject, settings)
        left = sorted(set(found(Path(name))) - set(before))
    assert "device is 'cuda:999'" in said and "auto takes" in said, f"the device cuda:999 is refused with {said!r}"
    assert left == [], f"a run on a device that isn't there left {left}"


@given(steps=st.sampled_from([99, 100, 203]))
def falsify_a_teachers_training_is_told_every_hundred_steps(subject: Any, steps: int) -> None:
    """Each hundredth step and its loss, under its own title, so that nobody takes them for the student's.

    Then it is said from where on lines are the student's.
    """
    stream = io.StringIO()
    with tempfile.TemporaryDirectory() as name:
        settings = small(Path(name), subject, out=Path(name, "out"), teacher_steps=steps, max_steps=1)
        subject.distill(settings, lines=subject.Lines(stream))
    lines = stream.getvalue().splitlines()
    told = [line.partition(", loss ")[0] for line in lines if ": step " in line or "attached" in line]
    expected = [f"teacher: step {step}/{steps}" for step in range(100, steps + 1, 100)]
    expected.append("ProgressCallback attached (log every 10 steps; 0 for epoch lines only)")
    assert told == expected, (
        f"of {steps} steps of a teacher, and the student's start, are told {told}; expected {expected}"
    )
