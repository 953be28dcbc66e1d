"""Attacks on texts and their sequences. The subject is `reference_trainer.data.text`, or has its names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_run.text_cases import file_of, sequences_of

# Seed and epoch, and the first seven bytes of `printf SEED/EPOCH | sha256sum`.
NUMBERS = {(0, 1): 0xA93875FE509AC2, (0, 2): 0x9DC6366A2003D4, (7, 3): 0x653E83E7D95BB7, (1, 11): 0x00E48C98B384F9}


def falsify_orders_are_stable_across_versions(subject: Any) -> None:
    """Seed and epoch give the recorded generator seed, from which torch draws the order."""
    for (seed, number), drawn_by in NUMBERS.items():
        seen = subject.epoch_order(seed, number, 24).tolist()
        expected = torch.randperm(24, generator=torch.Generator().manual_seed(drawn_by)).tolist()
        assert seen == expected, (
            f"the order of epoch {number} of seed {seed} is {seen}; expected {expected}, as drawn from {drawn_by:#x}"
        )


def falsify_text_shorter_than_a_sequence_has_none(subject: Any) -> None:
    """It has no batch either; a text as long as a sequence has one."""
    for length in range(2, 10):
        for size in range(length + 1):
            sequences = sequences_of(subject, torch.arange(size, dtype=torch.uint8), length)
            seen, expected = (len(sequences), sequences.batches), (int(size == length),) * 2
            assert seen == expected, (
                f"{size} bytes have {seen[0]} sequences of {length}, and {seen[1]} batches; expected {expected}"
            )


@given(content=st.binary(min_size=11, max_size=60), at=st.integers(0, 8))
def falsify_tokens_are_a_private_copy(subject: Any, content: bytes, at: int) -> None:
    """Changing a token changes neither the file nor later reads."""
    with file_of(content) as path:
        text = subject.read_text(path, 2)
        text.training[at] = (content[at] + 1) % 256
        left, again = path.read_bytes(), subject.read_text(path, 2)
        read = bytes([*again.training.tolist(), *again.held_back.tolist()])
    assert left == content, f"token {at} was changed, and the file holds {left!r} instead of {content!r}"
    assert read == content, f"token {at} was changed, and {read!r} is read from a file of {content!r}"


def falsify_reading_emits_no_warning(subject: Any) -> None:
    """Neither for the frozen text nor for a file."""
    before = torch.is_warn_always_enabled()
    with file_of(b"x" * 100) as path, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)  # otherwise torch warns once per process
        try:
            _read_both(subject, path)
        finally:
            torch.set_warn_always(before)
    said = [str(each.message)[:120] for each in caught]
    assert not said, f"reading a text warns of {said}"


def _read_both(subject: Any, path: Path) -> None:
    for each in (None, path):
        text = subject.read_text(each, 4)
        sequences = sequences_of(subject, text.training, 4)
        sequences.batch(subject.epoch_order(0, 1, len(sequences)), 1)
