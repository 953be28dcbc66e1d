"""Attacks on the manifest, the device and the output of a run. The subject is that of `falsify_run_endings`."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote_from_bytes

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.optimizer import register_optimizer_step_post_hook

from falsifiers.distill_run.falsify_run_endings import found, refused, run, small

NOT_UTF_8 = [b"\xff", b"caf\xe9", b"%FF\xff \\xff", b"\xed\xa0\x80", b"\xf0\x9f"]
"""Latin-1, an encoded surrogate, a character cut off, and one beside what looks like its own escape."""
INSTANTS = st.sampled_from([0.0, 1e-9, 1.5e-9, 0.25, 8.0])


@contextmanager
def _optimizers() -> Iterator[list[dict[str, Any]]]:
    """Yield the name and the constants of each optimizer that steps."""
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
    """Patch the subject so that training reports `elapsed_s`."""
    really = subject.train
    return mock.patch.object(subject, "train", lambda *all_, **k: replace(really(*all_, **k), elapsed_s=elapsed_s))


@given(elapsed_s=INSTANTS, seed=st.integers(0, 9), epochs=st.integers(1, 2))
def falsify_manifest_entries_match_run(subject: Any, elapsed_s: float, seed: int, epochs: int) -> None:
    """Exactly the expected entries: settings, text, teacher, optimizer, device and numbers, observed independently."""
    with tempfile.TemporaryDirectory() as name, _optimizers() as stepped, _in(subject, elapsed_s):
        settings = small(Path(name), subject, out=Path(name, "out"), seed=seed, epochs=epochs)
        result = run(subject, settings)
        manifest = json.loads((settings.out / "manifest.json").read_text())
        (teacher,) = settings.teacher_cache.glob("*/model.safetensors")
        expected = {
            "schema": "reference-trainer/manifest/1",
            "settings": {name: _plain(value) for name, value in settings},
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
    shortest = max(elapsed_s, 1e-9)  # a run of less than a nanosecond counts as one nanosecond
    for what, count in (("steps", train.steps_completed), ("tokens", train.tokens)):
        seen = told.pop(f"throughput_{what}_per_s", None)
        assert seen is not None and math.isclose(seen, count / shortest, rel_tol=1e-9), (
            f"{count} {what} in {elapsed_s} s are {seen!r} per second; expected {count / shortest}"
        )
    assert told == asdict(train), f"the manifest's result is {told}; the run's {asdict(train)}"
    held_back = {name: {"nats": each.sum, "tokens": each.count} for name, each in result.held_back.items()}
    assert manifest["held_back"] == held_back, f"held back are {manifest['held_back']}; measured were {held_back}"


@given(part=st.sampled_from(["data", "out", "teacher_cache", "trace"]), name=st.sampled_from(NOT_UTF_8))
def falsify_manifest_holds_paths_that_are_not_utf_8(subject: Any, part: str, name: bytes) -> None:
    """The run writes its model, and the manifest is Unicode JSON from which the bytes of the path can be read back.

    A path of ordinary characters stays a string, so that the two forms cannot be confused.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(os.fsdecode(os.fsencode(temporary) + b"/" + name))
        settings = small(Path(temporary), subject, **{"out": Path(temporary, "out"), part: path})
        if part == "data":
            Path(temporary, "text").rename(path)
        run(subject, settings)
        text = (settings.out / "manifest.json").read_bytes().decode("utf-8")
        written = json.loads(text)["settings"]
    try:
        json.dumps(written, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise AssertionError(f"the manifest holds characters that are not Unicode: {written[part]!r}") from error
    seen, expected = written[part], {"percent_encoded": quote_from_bytes(os.fsencode(path))}
    assert seen == expected, f"for the {part} path {os.fsencode(path)!r} the manifest has {seen!r}; expected {expected}"
    others = {each: written[each] for each in ("data", "out", "teacher_cache") if each != part}
    expected_others = {each: str(getattr(settings, each)) for each in others}
    assert others == expected_others, f"the manifest has {others} for the other paths; expected {expected_others}"


def falsify_auto_selects_cuda_if_available(subject: Any) -> None:
    """And the CPU otherwise."""
    for there, expected in ((False, "cpu"), (True, "cuda")):
        seen = _place_of_a_run(subject, there)
        assert seen == expected, f"with CUDA {'' if there else 'not '}available, auto is {seen}"


def _place_of_a_run(subject: Any, there: bool) -> str:
    """Return the device selected by auto, or the one named by the error."""
    with tempfile.TemporaryDirectory() as name, mock.patch.object(torch.cuda, "is_available", lambda: there):
        settings = small(Path(name), subject, out=Path(name, "out"), device="auto")
        try:
            return str(next(run(subject, settings).student.parameters()).device.type)
        except ValueError as refusal:
            return str(refusal).removeprefix("invalid value '").partition("'")[0]


def falsify_missing_device_is_rejected(subject: Any) -> None:
    """By name, with advice, and before anything is created."""
    with tempfile.TemporaryDirectory() as name:
        settings = small(Path(name), subject, out=Path(name, "out"), device="cuda:999")
        before = found(Path(name))
        said = refused(subject, settings)
        left = sorted(set(found(Path(name))) - set(before))
    assert "invalid value 'cuda:999' for 'device'" in said and "use auto" in said, (
        f"the device cuda:999 is rejected with {said!r}"
    )
    assert left == [], f"a run on a missing device left {left}"


@given(steps=st.sampled_from([99, 100, 203]))
def falsify_teacher_progress_is_printed_every_hundred_steps(subject: Any, steps: int) -> None:
    """Each hundredth step and its loss have the teacher's title.

    A line then separates them from the student's.
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
        f"for {steps} steps of a teacher and the student's start the output is {told}; expected {expected}"
    )
