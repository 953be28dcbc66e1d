"""Attacks on where a teacher comes from: a cache, a training, a directory.

The subject is `reference_trainer.teachers`, or has its names.
"""

from __future__ import annotations

import itertools
import json
import os
import pwd
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

CPU = torch.device("cpu")
TEXT = torch.arange(60, dtype=torch.uint8)
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"

# Every setting that a trained teacher depends on, with two values; then every other one.
DEPENDS = {
    "batch_size": (2, 3),
    "dtype": ("float32", "bfloat16"),
    "length": (8, 9),
    "lr": (3e-3, 4e-3),
    "seed": (0, 1),
    "warmup": (1, 11),
    "teacher_layers": (1, 2),
    "teacher_steps": (2, 21),
    "teacher_width": (16, 32),
}
ELSE = {
    "data": Path("elsewhere"),
    "out": Path("elsewhere"),
    "force": True,
    "trace": Path("elsewhere"),
    "teacher": Path("elsewhere"),
    "teacher_cache": Path("elsewhere"),
    "layers": 3,
    "width": 128,
    "epochs": 7,
    "max_steps": 9,
    "smoke": 9,
    "temperature": 3.0,
    "ce_weight": 0.9,
    "kd_weight": 0.1,
    "device": "cpu",
    "log_every": 3,
    "project_to_steps": 7,
}


def settings_of(subject: Any, cache: Path | None, **others: Any) -> Any:
    return subject.Settings(teacher_cache=cache, **{**{name: values[0] for name, values in DEPENDS.items()}, **others})


class Fetched:
    """A teacher as a run gets it: its weights' bits, the steps it was trained, and what was said."""

    def __init__(self, subject: Any, settings: Any, digest: str = "d") -> None:
        self.said: list[str] = []
        self.steps = 0
        part = {"length": settings.length, "batch_size": settings.batch_size, "device": CPU}
        sequences = subject.Sequences(bytes_N=TEXT, **part)
        # A smoke run's settings have a smaller number of steps; the key is of the whole training.
        teacher = subject.cached_or_trained(
            settings, sequences, digest, [self._counter(subject)], self.said.append, _same
        )
        self.bits = bits_of(teacher)

    def _counter(self, subject: Any) -> Any:
        def count(listener: Any, context: Any) -> None:
            self.steps = context.step

        return type("Counter", (subject.Callback,), {"on_step_end": count})()


def _same(decoder: nn.Module) -> nn.Module:
    return decoder


def bits_of(module: nn.Module) -> dict[str, tuple[str, list[Any]]]:
    return {name: (str(value.dtype), value.tolist()) for name, value in module.state_dict().items()}


@given(
    seed=st.integers(0, 9),
    layers=st.integers(1, 2),
    steps=st.integers(1, 3),
    width=st.sampled_from([16, 48]),
)
def falsify_a_cached_teacher_is_the_trained_one(subject: Any, seed: int, layers: int, steps: int, width: int) -> None:
    """Bit for bit, without a step; a training in another place gives the same, one of another seed another."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        own = {"seed": seed, "teacher_layers": layers, "teacher_steps": steps, "teacher_width": width}
        first = Fetched(subject, settings_of(subject, Path(one, "cache"), **own))
        second = Fetched(subject, settings_of(subject, Path(one, "cache"), **own))
        afresh = Fetched(subject, settings_of(subject, Path(two), **own))
        other = Fetched(subject, settings_of(subject, Path(one, "cache"), **{**own, "seed": seed + 1}))
    assert first.steps == afresh.steps == steps, f"trained for {first.steps} and {afresh.steps} steps of {steps}"
    assert second.steps == 0, f"a cached teacher was trained again for {second.steps} steps: {second.said}"
    assert second.bits == first.bits, "the cached teacher has other weights than the one that was trained and kept"
    assert afresh.bits == first.bits, "two trainings with the same settings and text give different teachers"
    assert other.steps == steps and other.bits != first.bits, "another seed gives the same teacher"


def falsify_the_key_holds_what_the_teacher_depends_on(subject: Any) -> None:
    """It changes with each such setting, the text, the kind of device and the version of torch, and with no other.

    Which settings those are is watched while a teacher is trained.
    """
    base = settings_of(subject, None)
    key = subject.teacher_key(base, "d", CPU)
    assert {*DEPENDS, *ELSE} == {each.name for each in fields(base)}, "a setting is unknown to this falsifier"
    for name, (_, other) in DEPENDS.items():
        changed = subject.teacher_key(replace(base, **{name: other}), "d", CPU)
        assert changed != key, f"with {name} = {other!r} the key stays, so a teacher of other settings would be taken"
    for name, other in ELSE.items():
        changed = subject.teacher_key(replace(base, **{name: other}), "d", CPU)
        assert changed == key, f"with {name} = {other!r} the key changes, though the teacher would be the same"
    assert subject.teacher_key(base, "e", CPU) != key, "another text has the same key"
    assert subject.teacher_key(base, "d", torch.device("cuda")) != key, "another kind of device has the same key"
    with mock.patch.object(torch, "__version__", "0.0.0"):
        assert subject.teacher_key(base, "d", CPU) != key, "another version of torch has the same key"
    read = _read_by_a_training(subject, base)
    assert read <= set(DEPENDS), f"a training of a teacher reads {sorted(read - set(DEPENDS))}, which isn't in the key"


def _read_by_a_training(subject: Any, settings: Any) -> set[str]:
    read: set[str] = set()

    class Watched:
        def __getattr__(self, name: str) -> Any:
            read.add(name)
            return getattr(settings, name)

    sequences = subject.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=CPU)
    subject.fit(Watched(), sequences, 1, [], _same)
    return read


def falsify_equal_keys_mean_equal_settings(subject: Any) -> None:
    """No two combinations share a key because their texts, put one after the other, read alike."""
    numbers = (1, 2, 11, 12, 21, 112)
    taken: dict[str, tuple[Any, ...]] = {}
    for values in itertools.product(numbers, numbers, numbers, ("1", "11", "d")):
        chosen = dict(zip(("seed", "warmup", "batch_size"), values, strict=False))
        key = subject.teacher_key(settings_of(subject, None, **chosen), values[-1], CPU)
        other = taken.setdefault(key, values)
        assert other == values, f"seed, warmup, batch_size and text {other} and {values} share the key {key}"


def cut(path: Path, part: float = 0.5) -> None:
    os.truncate(path, int(path.stat().st_size * part))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1  # a low bit of a weight: still a number
    path.write_bytes(bytes(content))


def reconfigure(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut in half": lambda d: cut(d / WEIGHTS),
    "empty weights": lambda d: cut(d / WEIGHTS, 0),
    "weights with one bit flipped": lambda d: _flip(d / WEIGHTS),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "another shape in the configuration": lambda d: reconfigure(d / CONFIG, layers=2),
    "another number of heads in the configuration": lambda d: reconfigure(d / CONFIG, heads=2),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "a configuration cut in half": lambda d: cut(d / CONFIG),
    "no configuration": lambda d: (d / CONFIG).unlink(),
    "no manifest, as after a kill": lambda d: (d / MANIFEST).unlink(),
    "an empty manifest": lambda d: cut(d / MANIFEST, 0),
    "a manifest of nothing": lambda d: (d / MANIFEST).write_text("[]"),
}


@given(damage=st.sampled_from(list(DAMAGES)))
def falsify_a_damaged_cache_is_left_aside(subject: Any, damage: str) -> None:
    """The teacher is trained anew, the same bits as before; kept, and taken the next time."""
    with tempfile.TemporaryDirectory() as name:
        settings = settings_of(subject, Path(name))
        first = Fetched(subject, settings)
        (directory,) = Path(name).iterdir()
        DAMAGES[damage](directory)
        again = Fetched(subject, settings)
        assert again.steps == first.steps, f"with {damage}, the cached teacher is taken: {again.said}"
        assert again.bits == first.bits, f"with {damage}, the teacher that is trained anew has other weights"
        aside = [f"teacher: the cached one is left aside: {directory}" in line for line in again.said]
        assert sum(aside) == ("no manifest" not in damage), f"with {damage}, this is said: {again.said}"
        third = Fetched(subject, settings)
        assert third.steps == 0 and third.bits == first.bits, (
            f"after {damage} the cache was not made whole: {third.said}"
        )


def _file(path: Path) -> Path:
    path.touch()
    return path


UNWRITABLE: dict[str, Callable[[Path], Path]] = {
    "is a file": _file,
    "lies beneath a file": lambda path: _file(path) / "cache",
    "can't be made": lambda path: Path("/proc/cache"),
    "has too long a name": lambda path: path / ("x" * 300),
}


@given(kind=st.sampled_from(list(UNWRITABLE)))
def falsify_an_unwritable_cache_costs_a_training_not_the_run(subject: Any, kind: str) -> None:
    """The teacher is what it is with a cache, and it is said that it wasn't kept."""
    with tempfile.TemporaryDirectory() as name:
        expected = Fetched(subject, settings_of(subject, Path(name, "good")))
        seen = Fetched(subject, settings_of(subject, UNWRITABLE[kind](Path(name, "bad"))))
    assert seen.bits == expected.bits, f"a cache that {kind} gives another teacher"
    assert any("not kept" in line for line in seen.said), f"a cache that {kind}: nothing says so in {seen.said}"


def falsify_a_user_without_a_home_has_no_cache_and_a_run(subject: Any) -> None:
    """As in a container whose user is a bare number."""
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    unknown = mock.patch.object(pwd, "getpwuid", side_effect=KeyError("no such user, on purpose"))
    with unknown, mock.patch.dict(os.environ, environment, clear=True):
        seen = Fetched(subject, settings_of(subject, None))
    assert seen.steps == 2 and any("not kept" in line for line in seen.said), f"{seen.steps} steps, {seen.said}"


@given(steps=st.integers(1, 4))
def falsify_a_smoke_run_only_reads_the_cache(subject: Any, steps: int) -> None:
    """It trains no longer than it runs, keeps nothing, and takes what an earlier run kept."""
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name, "cache")
        smoke = Fetched(subject, settings_of(subject, cache, smoke=steps))
        assert smoke.steps == min(steps, 2), f"a smoke run of {steps} steps trained a teacher for {smoke.steps} of 2"
        assert not cache.exists(), f"a smoke run left {sorted(p.name for p in cache.rglob('*'))} in the cache"
        whole = Fetched(subject, settings_of(subject, cache))
        assert whole.steps == 2, f"after a smoke run the teacher was trained for {whole.steps} steps of 2"
        again = Fetched(subject, settings_of(subject, cache, smoke=steps))
        assert again.steps == 0 and again.bits == whole.bits, (
            f"a smoke run trained though a teacher was kept: {again.said}"
        )
