"""Attacks on reading text files. The subject is `reference_trainer.data.text`, or has its names."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_run.text_cases import epoch, file_of, sequences_of
from falsifiers.support.oracles import refusal_complaint


@given(content=st.binary(min_size=11, max_size=300), name=st.sampled_from([b"text", "texté".encode(), b"text\xff"]))
def falsify_tokens_are_the_bytes(subject: Any, content: bytes, name: bytes) -> None:
    """Tokens are the bytes, 0 to 255, valid UTF-8 or not, in the content and in the file's name; digest as well."""
    length = 2
    with file_of(content, name) as path:
        text = subject.read_text(path, length)
        read = [*text.training.tolist(), *text.held_back.tolist()]
        sequences = sequences_of(subject, text.training, length)
        tokens = {int(x) for batch in epoch(subject, sequences) for x in batch.tokens.flatten()}
    assert read == list(content), f"read {read} from a file of {list(content)}"
    assert tokens == set(content[: len(text.training)]), f"tokens {sorted(tokens)} of the bytes {sorted(set(content))}"
    expected = hashlib.sha256(content).hexdigest()
    assert text.digest == expected, f"the digest is {text.digest}, SHA-256 of the file is {expected}"
    assert text.name == str(path), f"the text is called {text.name!r}, expected the text {str(path)!r}"


def falsify_frozen_text_is_the_default(subject: Any) -> None:
    """Whole, with its own digest, and English."""
    text, content = subject.read_text(None, 64), subject.frozen_text()
    assert bytes(text.training.tolist()) + bytes(text.held_back.tolist()) == content, "another text than the frozen one"
    assert text.digest == hashlib.sha256(content).hexdigest(), f"the digest {text.digest} is of something else"
    assert content.count(b" the ") > 2000, "the frozen text is not English"


@given(length=st.integers(2, 300) | st.integers(300, 10**6), held=st.integers(0, 3))
def falsify_minimum_size_is_the_minimum(subject: Any, length: int, held: int) -> None:
    """The error of a short text names a minimum: a text of that size is accepted and has a sequence in each part.

    One byte less is rejected, and the error names the size of the text.
    """
    with file_of(b"x" * held) as path:
        said = _refusal(subject, path, length)
        assert f" {held} bytes" in said, f"the error of a text of {held} bytes is: {said}"
        named = re.findall(r"at least ([\d.]+)", said)[0]
        assert named.isdecimal(), f"the minimum is {named}; expected a whole number: {said}"
        fewest = int(named)
        os.truncate(path, fewest - 1)
        assert "at least" in _refusal(subject, path, length), f"{fewest - 1} bytes: {said}"
        os.truncate(path, fewest)
        try:
            text = subject.read_text(path, length)
        except ValueError as refusal:
            raise AssertionError(f"{fewest} bytes are rejected: {refusal}") from refusal
        for what, part in (("training", text.training), ("held back", text.held_back)):
            count = len(sequences_of(subject, part, length))
            assert count >= 1, f"of {fewest} bytes, the part for {what} has {count} sequences of {length}"


@given(length=st.integers(10**6, 10**18) | st.integers(2, 18).map(lambda digits: 10**digits - 1))
def falsify_minimum_size_is_exact(subject: Any, length: int) -> None:
    """Far above the size of any real file: a tenth of the minimum, rounded up, is a sequence; of one byte less, not.

    float64 has no odd numbers above 2^53.
    """
    with file_of(b"") as path:
        said = _refusal(subject, path, length)
    named = re.findall(r"at least (\d+),", said)
    assert len(named) == 1, f"sequences of {length}: no whole number of bytes is named in {said!r}"
    fewest = int(named[0])
    tenths = [-(-size // 10) for size in (fewest - 1, fewest)]
    assert tenths == [length - 1, length], (
        f"the minimum for sequences of {length} is {fewest} bytes; a tenth of one less is {tenths[0]}, of as many "
        f"{tenths[1]}; expected {length - 1} and {length}"
    )


def _refusal(subject: Any, path: Path, length: int) -> str:
    try:
        subject.read_text(path, length)
    except ValueError as refusal:
        return str(refusal)
    raise AssertionError(
        f"{path.stat().st_size} bytes are accepted for sequences of {length}, although they are fewer than the minimum"
    )


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _empty(path: Path) -> Path:
    path.touch()
    return path


def _loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


UNREADABLE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "an empty file": (_empty, "at least"),
    "a directory": (lambda path: path.parent, "not a regular file"),
    "nothing": (lambda path: path / "missing", "cannot read"),
    "a FIFO without a writer": (_fifo, "not a regular file"),
    "a device": (lambda path: Path("/dev/zero"), "not a regular file"),
    "an unreadable file": (lambda path: Path("/proc/self/mem"), "cannot read"),
    "a file that cannot be mapped": (lambda path: Path("/proc/self/status"), "cannot map"),
    "a link to itself": (_loop, "cannot read"),
    "a name that is too long": (lambda path: path.with_name("x" * 300), "cannot read"),
}


@given(kind=st.sampled_from(list(UNREADABLE)))
def falsify_unreadable_files_are_rejected(subject: Any, kind: str) -> None:
    """A ValueError that names the path, at once: a FIFO without a writer must not block a run."""
    make, words = UNREADABLE[kind]
    with tempfile.TemporaryDirectory() as directory:
        path = make(Path(directory, "text"))
        complaint = _in_time(
            path, lambda: refusal_complaint(kind, lambda: subject.read_text(path, 8), str(path), words)
        )
    assert complaint is None, complaint


def _in_time(path: Path, ask: Callable[[], str | None]) -> str | None:
    """Return the answer, or a complaint after two seconds; a blocked FIFO is then opened for writing."""
    answers: list[str | None] = []
    asking = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    asking.start()
    asking.join(2)
    if asking.is_alive() and path.is_fifo():
        os.close(os.open(path, os.O_RDWR))
    asking.join(2)
    return answers[0] if answers and not asking.is_alive() else f"reading {path} was still going on after 2 s"
