"""The text that ships with the trainer, and the errors and warnings of reading a text."""

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_trainer.data.text import Sequences, epoch_order, packaged_text, read_text
from reference_trainer.errors import DataError


def test_packaged_text_is_english_and_long_enough() -> None:
    text = packaged_text()
    assert len(text) > 300_000
    assert text.count(b" the ") > 2000


def refusal(path: Path, length: int) -> str:
    with pytest.raises(DataError) as raised:
        read_text(path, length)
    return str(raised.value)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=st.integers(2, 300) | st.integers(10**6, 10**18) | st.integers(2, 18).map(lambda digits: 10**digits - 1),
    size=st.integers(0, 3),
)
def test_short_text_error_names_size_and_exact_minimum(tmp_path: Path, length: int, size: int) -> None:
    """float64 has no odd number above 2^53."""
    path = tmp_path / "text"
    path.write_bytes(b"x" * size)
    message = refusal(path, length)
    assert f"{path} holds {size} bytes" in message
    fewest = int(re.findall(r"at least (\d+),", message)[0])
    assert [-(-each // 10) for each in (fewest - 1, fewest)] == [length - 1, length]


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        pytest.param(lambda path: path.parent, "is not a regular file", id="directory"),
        pytest.param(fifo, "is not a regular file", id="FIFO"),
        pytest.param(lambda path: Path("/dev/zero"), "is not a regular file", id="device"),
        pytest.param(lambda path: path / "missing", "cannot read", id="nothing"),
        pytest.param(lambda path: Path("/proc/self/mem"), "cannot read", id="unreadable file"),
        pytest.param(loop, "cannot read", id="link to itself"),
        pytest.param(lambda path: path.with_name("x" * 300), "cannot read", id="name that is too long"),
        pytest.param(lambda path: Path("/proc/self/status"), "cannot map", id="file that cannot be mapped"),
    ],
)
def test_unreadable_file_error_names_path_and_cause(tmp_path: Path, make: Callable[[Path], Path], cause: str) -> None:
    path = make(tmp_path / "text")
    message = refusal(path, 8)
    assert str(path) in message
    assert cause in message


@pytest.mark.parametrize("packaged", [True, False])
def test_reading_emits_no_warning(tmp_path: Path, packaged: bool) -> None:
    (tmp_path / "text").write_bytes(b"x" * 100)
    before = torch.is_warn_always_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.set_warn_always(True)  # otherwise torch warns once per process
        try:
            text = read_text(None if packaged else tmp_path / "text", 4)
            sequences = Sequences(bytes_N=text.training, length=4, batch_size=3, device=torch.device("cpu"))
            sequences.batch(epoch_order(0, 1, len(sequences)), 1)
        finally:
            torch.set_warn_always(before)
