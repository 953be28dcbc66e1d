"""Attacks on a cache of evaluations: races, damage, where it is, and the identity of an evaluation."""

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.evaluation.cases import TOKENS, checkpoint, chosen, model
from falsifiers.support.ranks import run_ranks
from falsifiers.support.scratch import reconfigure, scratch
from falsifiers.support.small_runs import run, small
from falsifiers.teacher_outputs.falsify_outputs import written

IDENTITY = {"data": "a", "length": 3}


@given(ranks=st.sampled_from([3, 2]))
def falsify_entry_is_produced_once(subject: Any, ranks: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        cache, productions = Path(name) / "cache", Path(name) / "productions"
        productions.mkdir()

        def asked(rank: int) -> str:
            def produce(place: Path) -> None:
                (productions / str(rank)).touch()
                (place / "half").write_text("half")
                time.sleep(0.2)  # so that the others ask meanwhile
                (place / "value").write_text(str(rank))

            entry = subject.produce_once(cache, "kind", IDENTITY, produce)
            return f"{(entry / 'half').read_text()} {(entry / 'value').read_text()}"

        seen = run_ranks(ranks, asked)
        left = [each.name for each in cache.iterdir() if not each.name.endswith(".lock")]
        producing = sorted(each.name for each in productions.iterdir())
    assert len(producing) == 1, f"of {ranks} processes, {producing} produce the entry; expected one"
    assert len(set(seen)) == 1, f"{ranks} processes have {seen}"
    assert len(left) == 1, f"{ranks} processes left {left}"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed byte": lambda entry: (entry / "value").write_bytes(b"whale"),
    "a shorter file": lambda entry: (entry / "value").write_bytes(b"whol"),
    "a missing file": lambda entry: (entry / "value").unlink(),
    "a further file": lambda entry: (entry / "more").touch(),
    "a directory": lambda entry: (entry / "more").mkdir(),
    "no manifest": lambda entry: (entry / "manifest.json").unlink(),
    "half a manifest": lambda entry: (entry / "manifest.json").write_text("{"),
    "another identity": lambda entry: reconfigure(entry / "manifest.json", identity={"data": "b"}),
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
    with scratch() as directory:
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


TEXT = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a", "a|b", "b", 'a","', "None"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {"length": st.integers(2, 9), "accept_depth": st.integers(0, 9)}
VALUES["top_k"] = st.one_of(st.none(), st.integers(1, 9))


@given(data=st.data())
def falsify_each_field_changes_the_digest(subject: Any, data: st.DataObject) -> None:
    names = [each.name for each in fields(subject.EvalConfig)]
    assert len(names) == 14, f"an identity has the fields {names}"
    drawn = {name: data.draw(VALUES.get(name, TEXT), label=name) for name in names}
    config = subject.EvalConfig(**drawn)
    assert config.digest == replace(config).digest, f"equal identities {drawn} have two digests"
    for name in names:
        other = data.draw(VALUES.get(name, TEXT), label=name)
        if other == drawn[name]:
            continue
        assert replace(config, **{name: other}).digest != config.digest, f"{name} {other!r} has the digest of {drawn}"
    joined = [replace(config, data=one, documents=two, dtype="") for one, two in (("a|", "b"), ("a", "|b"))]
    assert joined[0].digest != joined[1].digest, "'a|' and 'b' have the digest of 'a' and '|b'"
    split = [replace(config, own=one, part=two) for one, two in (("x|y", "z"), ("x", "y|z"))]
    assert split[0].digest != split[1].digest, "'x|y' and 'z' have the digest of 'x' and 'y|z'"
    assert config.in_json()["sha256"] == config.digest, "the digest in JSON is another"


def falsify_identity_is_of_contents(subject: Any) -> None:
    text = bytes(range(TOKENS)) * 4
    with scratch() as directory:
        student, teacher = model(directory, 1), model(directory, 2)

        def digest(text: bytes = text, whole: bool = False, **others: Any) -> str:
            settings = chosen(directory, text, **{"teacher": teacher, **others})
            found: str = subject.evaluate_saved([student], settings, whole=whole).config.digest
            return found

        first, copy = digest(), directory / "copy"
        copy.write_bytes(text)
        same = {"batch_size": digest(batch_size=7), "a path": digest(data=copy), "seed": digest(seed=3, lr=0.5)}
        other = {
            "the text in place": digest(text[::-1]),
            "whole": digest(whole=True),
            "another teacher": digest(teacher=model(directory, 3)),
            "no teacher": digest(teacher=None),
            "length": digest(length=4),
            "documents": digest(documents="pad"),
            "length of documents": digest(documents="pad", length=4),
            "dtype": digest(dtype="bfloat16"),
            "separator": digest(documents="pad", separator="\x07"),
            "vocabulary": digest(share_vocabulary="pad"),
            "accept_depth": digest(accept_depth=2),
        }
        tokenized = {"parts": "falsifiers.evaluation.parts:Tokenized"}
        pairs = [("a", "a"), ("b", "a"), ("a", "b")]
        other |= {
            f"tokenizer {one}, chat template {two}": digest(
                **tokenized, arguments=json.dumps({"tokenizer": one, "chat_template": two})
            )
            for one, two in pairs
        }
        alone = digest(teacher=None, accept_depth=2, share_vocabulary="pad")
    assert set(same.values()) == {first}, f"of {list(same)}, one changes the identity"
    seen = {"the settings": first, **other}
    twins = [f"{a} and {b}" for a, b in itertools.combinations(seen, 2) if seen[a] == seen[b]]
    assert not twins, f"settings with one identity: {twins}"
    assert alone == other["no teacher"], "settings that need a teacher change an identity without one"


def falsify_identity_of_a_run_has_its_top_k(subject: Any) -> None:
    with scratch() as directory:

        def digest(name: str, **others: Any) -> str:
            run(subject, small(directory, out=directory / name, **others))
            found: str = json.loads((directory / name / "manifest.json").read_text())["evaluation"]["sha256"]
            return found

        live = digest("live")
        outputs = {top_k: written(directory, f"outputs-{top_k}", top_k=top_k) for top_k in (None, 2, 3)}
        stored = {top_k: digest(f"run-{top_k}", teacher_outputs=path) for top_k, path in outputs.items()}
    assert stored[None] == live, "outputs of every token have another identity than the teacher"
    assert len({*stored.values()}) == 3, f"of the live teacher and top 2 and 3, some have one identity: {stored}"
