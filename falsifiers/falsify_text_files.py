"""Attacks on which files are texts. The subject is `reference_trainer.data`, or has its names."""

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

from falsifiers.oracles import refusal_complaint
from falsifiers.text_cases import epoch, file_of, sequences_of


@given(content=st.binary(min_size=11, max_size=300), length=st.just(2))
def falsify_any_bytes_are_text(subject: Any, content: bytes, length: int) -> None:
    """Tokens are the bytes themselves, 0 to 255, valid UTF-8 or not; digest and name are those of the file."""
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


def falsify_the_frozen_text_is_read_where_no_file_is_named(subject: Any) -> None:
    """Whole, with its own digest, and English."""
    text, content = subject.read_text(None, 64), subject.frozen_text()
    assert bytes(text.training.tolist()) + bytes(text.held_back.tolist()) == content, "another text than the frozen one"
    assert text.digest == hashlib.sha256(content).hexdigest(), f"the digest {text.digest} is of something else"
    assert content.count(b" the ") > 2000, "the frozen text is hardly English"


@given(length=st.integers(2, 300) | st.integers(300, 10**6), held=st.integers(0, 3))
def falsify_the_fewest_bytes_are_the_fewest(subject: Any, length: int, held: int) -> None:
    """The refusal of a short text names a size: a text of that size is taken, and gives a sequence of each part.

    One byte less is refused; and what the text holds is named as well.
    """
    with file_of(b"x" * held) as path:
        said = _refusal(subject, path, length)
        assert f" {held} bytes" in said, f"of a text of {held} bytes it is said: {said}"
        named = re.findall(r"at least ([\d.]+)", said)[0]
        assert named.isdecimal(), f"{named} bytes are needed, it is said; expected a whole number: {said}"
        fewest = int(named)
        os.truncate(path, fewest - 1)
        assert "at least" in _refusal(subject, path, length), f"{fewest - 1} bytes: {said}"
        os.truncate(path, fewest)
        try:
            text = subject.read_text(path, length)
        except ValueError as refusal:
            raise AssertionError(f"{fewest} bytes are refused: {refusal}") from refusal
        for what, part in (("training", text.training), ("held back", text.held_back)):
            count = len(sequences_of(subject, part, length))
            assert count >= 1, f"of {fewest} bytes, the part for {what} has {count} sequences of {length}"


@given(length=st.integers(10**6, 10**18) | st.integers(2, 18).map(lambda digits: 10**digits - 1))
def falsify_the_fewest_bytes_are_exact(subject: Any, length: int) -> None:
    """Far beyond any file that a test could write: a tenth of as many, rounded up, is a sequence, and of one less not.

    In integers; a float64 has no odd numbers from 2^53 on.
    """
    with file_of(b"") as path:
        said = _refusal(subject, path, length)
    named = re.findall(r"at least (\d+),", said)
    assert len(named) == 1, f"sequences of {length}: no whole number of bytes is named in {said!r}"
    fewest = int(named[0])
    tenths = [-(-size // 10) for size in (fewest - 1, fewest)]
    assert tenths == [length - 1, length], (
        f"sequences of {length} need at least {fewest} bytes, it is said; a tenth of one less is {tenths[0]}, and of "
        f"as many {tenths[1]}: expected {length - 1} and {length}"
    )


def _refusal(subject: Any, path: Path, length: int) -> str:
    try:
        subject.read_text(path, length)
    except ValueError as refusal:
        return str(refusal)
    raise AssertionError(
        f"{path.stat().st_size} bytes are taken as a text for sequences of {length}, though fewer than the refusal of "
        f"one byte says are needed, or than a tenth of them can hold"
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
    "a directory": (lambda path: path.parent, "no regular file"),
    "nothing": (lambda path: path / "missing", "can't be read"),
    "a FIFO that nobody writes to": (_fifo, "no regular file"),
    "a device": (lambda path: Path("/dev/zero"), "no regular file"),
    "a file that can't be read": (lambda path: Path("/proc/self/mem"), "can't be read"),
    "a file that can't be mapped": (lambda path: Path("/proc/self/status"), "can't be mapped"),
    "a link to itself": (_loop, "can't be read"),
    "a name that is too long": (lambda path: path.with_name("x" * 300), "can't be read"),
}


@given(kind=st.sampled_from(list(UNREADABLE)))
def falsify_what_is_no_text_is_refused(subject: Any, kind: str) -> None:
    """A ValueError that names the path, at once: a FIFO without a writer must not hold a run for ever."""
    make, words = UNREADABLE[kind]
    with tempfile.TemporaryDirectory() as directory:
        path = make(Path(directory, "text"))
        complaint = _in_time(
            path, lambda: refusal_complaint(kind, lambda: subject.read_text(path, 8), str(path), words)
        )
    assert complaint is None, complaint


def _in_time(path: Path, ask: Callable[[], str | None]) -> str | None:
    """The answer, or a complaint where there is none after two seconds; whoever waits for a FIFO is let go."""
    answers: list[str | None] = []
    asking = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    asking.start()
    asking.join(2)
    if asking.is_alive() and path.is_fifo():
        os.close(os.open(path, os.O_RDWR))
    asking.join(2)
    return answers[0] if answers and not asking.is_alive() else f"reading {path} was still going on after 2 s"
