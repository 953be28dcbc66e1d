"""Attacks on a cache of evaluations: races, damage, and where it is."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.evaluation.models import TOKENS, checkpoint, chosen, model
from falsifiers.support.ranks import run_ranks

IDENTITY = {"data": "a", "length": 3}


@given(ranks=st.sampled_from([3, 2]))
def falsify_entry_is_produced_once(subject: Any, ranks: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"

        def asked(rank: int) -> str:
            def produce(place: Path) -> None:
                (place / "half").write_text("half")
                time.sleep(0.2)  # so that the others ask meanwhile
                (place / "value").write_text(str(rank))

            entry = subject.produce_once(cache, "kind", IDENTITY, produce)
            return f"{(entry / 'half').read_text()} {(entry / 'value').read_text()}"

        seen = run_ranks(ranks, asked)
        left = [each.name for each in cache.iterdir() if not each.name.endswith(".lock")]
    assert len(set(seen)) == 1, f"{ranks} processes have {seen}"
    assert len(left) == 1, f"{ranks} processes left {left}"


def _flipped(entry: Path) -> None:
    (entry / "value").write_bytes(b"x")


def _of_another(entry: Path) -> None:
    content = json.loads((entry / "manifest.json").read_text())
    (entry / "manifest.json").write_text(json.dumps(content | {"identity": {"data": "b"}}))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed byte": _flipped,
    "a missing file": lambda entry: (entry / "value").unlink(),
    "a further file": lambda entry: (entry / "more").touch(),
    "a directory": lambda entry: (entry / "more").mkdir(),
    "no manifest": lambda entry: (entry / "manifest.json").unlink(),
    "half a manifest": lambda entry: (entry / "manifest.json").write_text("{"),
    "another identity": _of_another,
}


def falsify_damaged_entry_is_produced_again(subject: Any) -> None:
    made = []

    def produce(place: Path) -> None:
        made.append(place)
        (place / "value").write_text("whole")

    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"
        entry = subject.produce_once(cache, "kind", IDENTITY, produce)
        other = subject.produce_once(cache, "kind", IDENTITY | {"length": 4}, produce)
        assert entry != other and len(made) == 2, f"two identities have the entries {entry} and {other}"
        for count, (kind, damage) in enumerate(DAMAGE.items(), 1):
            damage(entry)
            again = subject.produce_once(cache, "kind", IDENTITY, produce)
            assert (again, (again / "value").read_text()) == (entry, "whole"), f"{kind}: {again} was taken"
            assert len(made) == 2 + count, f"{kind}: it was produced {len(made) - 1} times"
            aside = list(cache.glob("*.damaged-*"))
            assert len(aside) == count, f"{kind}: set aside are {aside}"
        (cache / f".{entry.name}.partial-killed").mkdir()
        _assert_a_failure_leaves_nothing(subject, cache)
        moved = cache.rename(Path(name) / "moved")
        there = subject.produce_once(moved, "kind", IDENTITY, produce)
        assert (there.parent, len(made)) == (moved, 2 + len(DAMAGE)), "an entry of a moved cache was produced again"
        (there / "value").unlink()
        subject.produce_once(moved, "kind", IDENTITY, produce)
        left = list(moved.glob(".*partial*"))
    assert not left, f"partial entries are left: {left}"


def _assert_a_failure_leaves_nothing(subject: Any, cache: Path) -> None:
    def fails(place: Path) -> None:
        (place / "value").write_text("half")
        raise ValueError("on purpose")

    before = {each for each in cache.iterdir() if not each.name.endswith(".lock")}
    failed = ""
    try:
        subject.produce_once(cache, "kind", {"data": "c"}, fails)
    except ValueError as error:
        failed = str(error)
    left = {each for each in cache.iterdir() if not each.name.endswith(".lock")} - before
    assert failed == "on purpose" and not left, f"a failure {failed!r} left {left}"


def _entries(cache: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mtime_ns for each in cache.iterdir() if not each.name.endswith(".lock")}


@given(compared=st.booleans())
def falsify_cached_evaluation_is_that_in_memory(subject: Any, compared: bool) -> None:
    text = bytes(range(TOKENS)) * 4
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        others: dict[str, Any] = {"teacher": model(directory, 3), "accept_depth": 2} if compared else {}
        paths, cache = [model(directory, 1), checkpoint(directory, 2)], directory / "cache"

        def sums(text: bytes = text, batch_size: int = 4, **where: Any) -> list[Any]:
            settings = chosen(directory, text, batch_size=batch_size, **others)
            return [each.sums for each in subject.evaluate_saved(paths, settings, **where).models]

        in_memory, filled = sums(), sums(cache=cache)
        stamps = _entries(cache)
        moved = cache.rename(directory / "moved")
        again = sums(batch_size=1, cache=moved)
        kept = _entries(moved)
        edited = sums(text[::-1], cache=moved)
        assert edited == sums(text[::-1]), "a text that was edited in place has other sums in memory"
    assert in_memory == filled == again, f"in memory {in_memory}; first {filled}; then {again}"
    assert kept == stamps and len(kept) == 2, f"the second evaluation was computed again: {stamps} and {kept}"
    assert edited != in_memory, "a text that was edited in place has the old sums"
