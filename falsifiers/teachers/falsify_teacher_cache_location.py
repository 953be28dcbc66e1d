"""Attacks on the location, key and manifest of a cached teacher.

The subject is that of `falsify_teacher_cache`.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.teachers.teacher_cases import CPU, TEXT, Fetched, settings_of

KEYS = {"2.9.1": "91244ea3437074d739d69d35", "2.13.0+cu130": "b190c0f869cf7531d5fcf31f"}
"""Of teachers cached with these versions of torch, for the text "d" and the settings of this falsifier."""


def falsify_cache_keys_are_stable_across_releases(subject: Any) -> None:
    for version, expected in KEYS.items():
        settings = settings_of(None, documents=None, separator=None)
        seen = subject.teacher_key(settings, "d", CPU, version=version)
        assert re.fullmatch("[0-9a-f]{24}", seen), f"the key {seen!r} is not 24 hexadecimal digits"
        assert seen == expected, f"with torch {version} the key is {seen}; expected {expected}"


HOME, NO_HOME = Path("/home/u"), None
PLACES: dict[str, tuple[dict[str, str], Path | None, Path | None, str]] = {
    "a given cache": ({"XDG_CACHE_HOME": "/xdg"}, HOME, Path("/named"), "/named"),
    "XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "/xdg"}, HOME, None, "/xdg/reference_trainer"),
    "an empty XDG_CACHE_HOME": ({"XDG_CACHE_HOME": ""}, HOME, None, "/home/u/.cache/reference_trainer"),
    "a home": ({}, HOME, None, "/home/u/.cache/reference_trainer"),
    "no home": ({}, NO_HOME, None, "--teacher-cache"),
    "no home, and XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "/xdg"}, NO_HOME, None, "/xdg/reference_trainer"),
    "no home, and a given cache": ({}, NO_HOME, Path("/named"), "/named"),
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
        teacher = subject.cached_or_trained(settings, sequences, "d", [], said.append, lambda decoder: decoder)
    places = {str(value.device) for value in teacher.state_dict().values()}
    assert places == {"meta"}, f"the text is on meta, and the cached teacher on {sorted(places)}; output: {said}"
