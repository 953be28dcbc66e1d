"""Attacks on reading text files. The subject is `reference_trainer.data.text`, or has its names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.oracles import assert_refused
from falsifiers.support.texts import epoch, file_of, sequences_of


@given(content=st.binary(min_size=11, max_size=300))
def falsify_tokens_are_the_bytes(subject: Any, content: bytes) -> None:
    length = 2
    with file_of(content) as path:
        text = subject.read_text(path, length)
        read = [*text.training.tolist(), *text.held_back.tolist()]
        sequences = sequences_of(subject, text.training, length)
        tokens = {int(x) for batch in epoch(subject, sequences) for x in batch.tokens.flatten()}
    assert read == list(content), f"read {read} from a file of {list(content)}"
    assert tokens == set(content[: len(text.training)]), f"tokens {sorted(tokens)} of the bytes {sorted(set(content))}"
    expected = hashlib.sha256(content).hexdigest()
    assert text.digest == expected, f"the digest is {text.digest}, SHA-256 of the file is {expected}"
    assert text.name == str(path), f"the text is called {text.name!r}, expected the text {str(path)!r}"


def falsify_packaged_text_is_the_default(subject: Any) -> None:
    text, content = subject.read_text(None, 64), subject.packaged_text()
    assert bytes(text.training.tolist()) + bytes(text.held_back.tolist()) == content, (
        "another text than the packaged one"
    )
    assert text.digest == hashlib.sha256(content).hexdigest(), f"the digest {text.digest} is of something else"
    assert content.count(b" the ") > 2000, "the packaged text is not English"


@given(length=st.integers(2, 300) | st.integers(300, 10**5))
def falsify_minimum_size_is_the_minimum(subject: Any, length: int) -> None:
    fewest = 10 * (length - 1) + 1
    with file_of(b"") as path:
        os.truncate(path, fewest - 1)
        raised = _refusal(subject, path, length)
        assert raised is not None, f"{fewest - 1} bytes are accepted for sequences of {length}"
        os.truncate(path, fewest)
        raised = _refusal(subject, path, length)
        assert raised is None, f"{fewest} bytes are refused for sequences of {length}: {raised}"
        text = subject.read_text(path, length)
    counts = [len(sequences_of(subject, part, length)) for part in (text.training, text.held_back)]
    assert min(counts) >= 1, f"of {fewest} bytes, the parts have {counts} sequences of {length}"


def _refusal(subject: Any, path: Path, length: int) -> str | None:
    """Return the message with which a text is refused, None if it is read."""
    try:
        subject.read_text(path, length)
    except ValueError as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return None


UNREADABLE: dict[str, Callable[[Path], Path]] = {
    "a directory": lambda path: path.parent,
    "nothing": lambda path: path / "missing",
    "a device": lambda path: Path("/dev/zero"),
    "an unreadable file": lambda path: Path("/proc/self/mem"),
}


@given(kind=st.sampled_from(list(UNREADABLE)))
def falsify_unreadable_files_are_refused(subject: Any, kind: str) -> None:
    with file_of(b"") as empty:
        for what, path in (("an empty file", empty), (kind, UNREADABLE[kind](empty))):
            assert_refused(what, lambda path=path: subject.read_text(path, 8))
