"""The text that ships with the trainer, and the errors and warnings of reading a text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reference_trainer.data.text import read_text
from reference_trainer.errors import DataError


def refusal(path: Path, length: int) -> str:
    with pytest.raises(DataError) as raised:
        read_text(path, length)
    return str(raised.value)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        pytest.param(lambda path: path.parent, "is not a regular file", id="directory"),
        pytest.param(lambda path: path / "missing", "cannot read", id="nothing"),
    ],
)
def test_unreadable_file_error_names_path_and_cause(tmp_path: Path, make: Callable[[Path], Path], cause: str) -> None:
    path = make(tmp_path / "text")
    message = refusal(path, 8)
    assert str(path) in message
    assert cause in message
