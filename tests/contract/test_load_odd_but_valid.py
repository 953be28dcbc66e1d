"""What is written in an unusual way, and means what it says, is read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Finding

Write = Callable[[str | bytes], Path]
Problems = Callable[..., list[Finding]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_the_line_ends_of_other_systems_are_read(end: str, write: Write, problems: Problems) -> None:
    assert problems(write(GOOD.replace("\n", end))) == []


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, problems: Problems) -> None:
    path = tmp_path / "contract.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert problems(path) == []
