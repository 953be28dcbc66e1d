"""Attacks on the cache of teachers and its keys.

The subject is `reference_trainer.pipeline.teachers`, or has its names.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.teachers.teacher_cases import CPU, DEPENDS, TEXT, Fetched, same, settings_of


@given(
    seed=st.integers(0, 9),
    layers=st.integers(1, 2),
    steps=st.integers(1, 3),
    width=st.sampled_from([16, 48]),
)
def falsify_cached_teacher_equals_trained_one(subject: Any, seed: int, layers: int, steps: int, width: int) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        own = {"seed": seed, "teacher_layers": layers, "teacher_steps": steps, "teacher_width": width}
        first = Fetched(subject, settings_of(Path(one, "cache"), **own))
        second = Fetched(subject, settings_of(Path(one, "cache"), **own))
        afresh = Fetched(subject, settings_of(Path(two), **own))
        other = Fetched(subject, settings_of(Path(one, "cache"), **{**own, "seed": seed + 1}))
    assert first.steps == afresh.steps == steps, f"trained for {first.steps} and {afresh.steps} steps of {steps}"
    assert second.steps == 0, f"a cached teacher was trained again for {second.steps} steps: {second.said}"
    assert any(f"{Path(one, 'cache')}" in line for line in second.said), f"no line names the cache: {second.said}"
    assert second.bits == first.bits, "the cached teacher has other weights than the one that was trained and kept"
    assert afresh.bits == first.bits, "two trainings with the same settings and text give different teachers"
    assert other.steps == steps and other.bits != first.bits, "another seed gives the same teacher"


def falsify_cache_key_covers_dependencies(subject: Any) -> None:
    base = settings_of(None)
    key = subject.teacher_key(base, "d", CPU)
    for name, (_, other) in DEPENDS.items():
        changed = subject.teacher_key(base.model_copy(update={name: other}), "d", CPU)
        assert changed != key, (
            f"with {name} = {other!r} the key is the same, so a teacher of other settings would be used"
        )
    assert subject.teacher_key(base, "e", CPU) != key, "another text has the same key"
    assert subject.teacher_key(base, "d", torch.device("cuda")) != key, "another kind of device has the same key"
    assert subject.teacher_key(base, "d", CPU, version="0.0.0") != key, "another version of torch has the same key"
    in_use = subject.teacher_key(base, "d", CPU, version=torch.__version__)
    assert in_use == key, "the version in the key is not that of torch"
    split = [settings_of(None, seed=seed, warmup=warmup) for seed, warmup in ((1, 12), (11, 2))]
    one, other = (subject.teacher_key(each, "d", CPU) for each in split)
    assert one != other, "seed 1 and warmup 12 share the key of seed 11 and warmup 2"
    trained, keyed = _Watched(base), _Watched(base)
    sequences = reference_trainer.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=CPU)
    subject.train_teacher(trained, sequences, 1, [], same)
    subject.teacher_key(keyed, "d", CPU)
    for what, read in (("a training", trained.read), ("the key", keyed.read)):
        assert read <= set(DEPENDS), f"{what} of a teacher reads {sorted(read - set(DEPENDS))}, on which none depends"


class _Watched:
    """Settings that record which of them are read."""

    def __init__(self, settings: Any) -> None:
        self.settings, self.read = settings, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.settings, name)


@given(steps=st.integers(1, 4))
def falsify_smoke_run_only_reads_cache(subject: Any, steps: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name, "cache")
        smoke = Fetched(subject, settings_of(cache, smoke=steps))
        assert smoke.steps == min(steps, 2), f"a smoke run of {steps} steps trained a teacher for {smoke.steps} of 2"
        assert not cache.exists(), f"a smoke run left {sorted(p.name for p in cache.rglob('*'))} in the cache"
        whole = Fetched(subject, settings_of(cache))
        assert whole.steps == 2, f"after a smoke run the teacher was trained for {whole.steps} steps of 2"
        again = Fetched(subject, settings_of(cache, smoke=steps))
        assert again.steps == 0 and again.bits == whole.bits, (
            f"a smoke run trained although a teacher was cached: {again.said}"
        )
