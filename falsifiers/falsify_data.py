"""Attacks on text, sequences and their order. The subject is `reference_trainer.data`, or has its names."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.oracles import refusal_complaint

LENGTHS = st.integers(2, 9)


@contextmanager
def file_of(content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "text")
        path.write_bytes(content)
        yield path


def sequences_of(subject: Any, text: Tensor, length: int, batch_size: int = 3) -> Any:
    return subject.Sequences(bytes_N=text, length=length, batch_size=batch_size, device=torch.device("cpu"))


def epoch(subject: Any, sequences: Any, seed: int = 0, number: int = 1) -> list[Any]:
    """The batches of an epoch, as a run asks for them."""
    order = subject.epoch_order(seed, number, len(sequences))
    return [sequences.batch(order, position) for position in range(1, sequences.batches + 1)]


@given(
    size=st.integers(2, 200),
    length=LENGTHS,
    batch_size=st.integers(1, 6),
    seed=st.integers(0, 99),
    number=st.integers(1, 9),
    data=st.data(),
)
def falsify_every_byte_is_predicted_once(
    subject: Any, size: int, length: int, batch_size: int, seed: int, number: int, data: st.DataObject
) -> None:
    """All but the first, and a rest shorter than a sequence; in full batches but the last, asked for in any order.

    The text holds no byte twice, so a byte tells where it stands.
    """
    text = torch.randperm(256, generator=torch.Generator().manual_seed(seed))[: max(size, length)].to(torch.uint8)
    place = {int(byte): k for k, byte in enumerate(text.tolist())}
    sequences = sequences_of(subject, text, length, batch_size)
    order = subject.epoch_order(seed, number, len(sequences))
    positions = data.draw(st.permutations(range(1, sequences.batches + 1)), label="asked for in the order")
    batches = {position: sequences.batch(order, position) for position in positions}
    predicted: list[int] = []
    for position, batch in sorted(batches.items()):
        rows = batch.tokens.tolist()
        assert batch.labels.tolist() == rows, f"labels of batch {position} are {batch.labels.tolist()}, tokens {rows}"
        for row in rows:
            places = [place[byte] for byte in row]
            assert places == list(range(places[0], places[0] + length)), f"a sequence holds the bytes at {places}"
            predicted += places[1:]
    whole = (len(text) - 1) // (length - 1) * (length - 1)
    assert sorted(predicted) == list(range(1, whole + 1)), (
        f"of {len(text)} bytes in sequences of {length} these are predicted: {sorted(predicted)}; expected: 1 to "
        f"{whole}, each once"
    )
    sizes = [len(batch.tokens) for _, batch in sorted(batches.items())]
    count = len(predicted) // (length - 1)
    expected = [min(batch_size, count - start) for start in range(0, count, batch_size)]
    assert sizes == expected, f"batches of {count} sequences hold {sizes}; expected {expected}"


@given(
    asked=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=6),
    drawn=st.integers(0, 3),
)
def falsify_order_follows_from_its_arguments(subject: Any, asked: list[tuple[int, int, int]], drawn: int) -> None:
    """A permutation, the same whatever was asked before, drawn before, or is torch's default device."""
    first = {arguments: subject.epoch_order(*arguments).tolist() for arguments in asked}
    for (seed, number, count), order in first.items():
        assert sorted(order) == list(range(count)), f"the order of {count} in epoch {number} of seed {seed} is {order}"
    torch.rand(drawn)
    before = torch.get_rng_state()
    for elsewhere in (1_000_001, 1_000_002):
        subject.epoch_order(elsewhere, 1, 3)  # as another run in this process would
    for arguments in reversed(asked):
        with torch.device("meta"):
            again = subject.epoch_order(*arguments)
        assert again.device.type == "cpu", f"under another default device the order is on {again.device}"
        assert again.tolist() == first[arguments], (
            f"epoch_order{arguments} was {first[arguments]}, and is {again.tolist()} after other calls"
        )
    assert torch.equal(before, torch.get_rng_state()), "asking for an order moved the process's random numbers"


def falsify_orders_differ(subject: Any) -> None:
    """No two of 24 seeds and 24 epochs share an order of 40: by chance they would once in 10^42."""
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    for seed in [*range(12), *range(110, 122)]:
        for number in [*range(1, 13), *range(100, 112)]:
            order = tuple(subject.epoch_order(seed, number, 40).tolist())
            other = seen.setdefault(order, (seed, number))
            assert other == (seed, number), f"seeds and epochs {other} and {(seed, number)} have the same order"


@given(size=st.integers(41, 400), length=st.integers(2, 5), seed=st.integers(0, 9))
def falsify_held_back_bytes_are_never_trained_on(subject: Any, size: int, length: int, seed: int) -> None:
    """The last tenth, rounded up, has bytes from 128: none is in a batch of training, in no epoch; and none is lost."""
    cut = size - -(-size // 10)
    content = bytes([*(k % 128 for k in range(cut)), *(128 + k % 128 for k in range(size - cut))])
    with file_of(content) as path:
        text = subject.read_text(path, length)
        for number in (1, 2):
            for batch in epoch(subject, sequences_of(subject, text.training, length), seed, number):
                assert int(batch.tokens.max()) < 128, f"held-back bytes in a training batch: {batch.tokens.tolist()}"
        for batch in epoch(subject, sequences_of(subject, text.held_back, length), seed):
            assert int(batch.tokens.min()) >= 128, f"trained bytes in a held-back batch: {batch.tokens.tolist()}"
        parts = bytes(text.training.tolist()) + bytes(text.held_back.tolist())
    assert parts == content, f"the parts hold {len(parts)} bytes, or other ones, of a text of {size}"


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
