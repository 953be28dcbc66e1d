"""Attacks on the cache of teachers: its keys, its place, and what damages it."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.scratch import cut, flip, reconfigure
from falsifiers.teachers.cases import (
    CONFIG,
    CPU,
    DEPENDS,
    MANIFEST,
    TEXT,
    WEIGHTS,
    Fetched,
    same,
    settings_of,
)


@given(seed=st.integers(0, 9), layers=st.integers(1, 2), steps=st.integers(1, 3), width=st.sampled_from([16, 48]))
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
        assert changed != key, f"with {name} = {other!r} the key is the same"
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
        assert again.steps == 0 and again.bits == whole.bits, f"a cached teacher was not used: {again.said}"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut in half": lambda d: cut(d / WEIGHTS),
    "weights with one bit flipped": lambda d: flip(d / WEIGHTS, -3),
    "another shape in the configuration": lambda d: reconfigure(d / CONFIG, layers=2),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "no manifest, as after a kill": lambda d: (d / MANIFEST).unlink(),
    "an empty manifest": lambda d: cut(d / MANIFEST, 0),
}


@given(damage=st.sampled_from(list(DAMAGES)))
def falsify_damaged_cache_is_ignored(subject: Any, damage: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        settings = settings_of(Path(name))
        first = Fetched(subject, settings)
        (directory,) = Path(name).iterdir()
        DAMAGES[damage](directory)
        again = Fetched(subject, settings)
        assert again.steps == first.steps, f"with {damage}, the cached teacher is used: {again.said}"
        assert again.bits == first.bits, f"with {damage}, the teacher that is trained again has other weights"
        lines = len(first.said) + ("no manifest" not in damage)
        assert len(again.said) == lines, f"with {damage}, the output is {again.said}; expected {lines} lines"
        third = Fetched(subject, settings)
        assert third.steps == 0 and third.bits == first.bits, f"after {damage} the cache was not repaired: {third.said}"


def falsify_unwritable_cache_does_not_end_run(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected = Fetched(subject, settings_of(Path(name, "good")))
        Path(name, "file").touch()
        seen = Fetched(subject, settings_of(Path(name, "file", "cache")))
    assert seen.bits == expected.bits, "a cache below a file gives another teacher"
    assert len(seen.said) == len(expected.said), f"with a cache below a file the output is {seen.said}"


HOME, NO_HOME = Path("/home/u"), None
PLACES: dict[str, tuple[dict[str, str], Path | None, Path | None, str]] = {
    "a given cache": ({"XDG_CACHE_HOME": "/xdg"}, HOME, Path("/named"), "/named"),
    "XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "/xdg"}, HOME, None, "/xdg/reference_trainer"),
    "a home": ({}, HOME, None, "/home/u/.cache/reference_trainer"),
    "no home": ({}, NO_HOME, None, "--teacher-cache"),
}
"""Variables, home directory, given cache, and where the cache is, or the flag that the error names."""


@given(case=st.sampled_from(list(PLACES)))
def falsify_cache_location(subject: Any, case: str) -> None:
    variables, home, named, expected = PLACES[case]

    def found() -> Path:
        if home is None:
            raise RuntimeError("no home directory, on purpose")  # as `Path.home` does
        return home

    try:
        seen = str(subject.cache_directory(settings_of(named), environment=variables, home=found))
    except reference_trainer.OutputError as error:
        seen = "--teacher-cache" if "--teacher-cache" in str(error) else repr(error)
    assert seen == expected, f"with {case}, the cache is {seen}; expected {expected}"


def falsify_cached_teacher_is_moved_to_device(subject: Any) -> None:
    meta, batches = torch.device("meta"), {"length": 8, "batch_size": 2}
    with tempfile.TemporaryDirectory() as name:
        settings = settings_of(Path(name))
        Fetched(subject, settings)
        (kept,) = Path(name).iterdir()
        kept.rename(kept.with_name(f"teacher-{subject.teacher_key(settings, 'd', meta)}"))
        sequences, said = reference_trainer.Sequences(bytes_N=TEXT, device=meta, **batches), list[str]()
        teacher = subject.load_or_train(settings, sequences, "d", [], said.append, lambda decoder: decoder)
    places = {str(value.device) for value in teacher.state_dict().values()}
    assert places == {"meta"}, f"the text is on meta, and the cached teacher on {sorted(places)}; output: {said}"
