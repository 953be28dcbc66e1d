"""Attacks on the identity of an evaluation."""

from __future__ import annotations

import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.evaluation.models import TOKENS, chosen, model

TEXT = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a", "a|b", "b", 'a","', "None"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {"length": st.integers(2, 9), "accept_depth": st.integers(0, 9)}


@given(data=st.data())
def falsify_each_field_changes_the_digest(subject: Any, data: st.DataObject) -> None:
    names = [each.name for each in fields(subject.EvalConfig)]
    assert len(names) == 13, f"an identity has the fields {names}"
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
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
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
            "dtype": digest(dtype="bfloat16"),
            "separator": digest(documents="pad", separator="\x07"),
            "vocabulary": digest(share_vocabulary="pad"),
            "accept_depth": digest(accept_depth=2),
        }
        alone = digest(teacher=None, accept_depth=2, share_vocabulary="pad")
    assert set(same.values()) == {first}, f"of {list(same)}, one changes the identity"
    assert len({first, *other.values()}) == 1 + len(other), f"of {list(other)}, one has the identity of another"
    assert alone == other["no teacher"], "settings that need a teacher change an identity without one"
