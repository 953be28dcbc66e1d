"""What is written in an unusual way, and means what it says, is read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Finding
from pv.contract.load import load

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


def test_a_version_directive_and_one_document_end_are_read(write: Write, problems: Problems) -> None:
    assert problems(write(f"%YAML 1.2\n---\n{GOOD}...\n")) == []


def test_a_whole_number_in_another_notation_is_a_whole_number(write: Write) -> None:
    path = write(GOOD.replace("  kills:", "  examples: 1e2\n  kills:"))
    examples = load([path]).contracts[0].falsifiers[0].examples
    assert (examples, type(examples)) == (100, int)


def test_text_of_a_megabyte_is_text(write: Write, problems: Problems) -> None:
    path = write(GOOD.replace("another factor", '"' + "x" * 900_000 + '"'))
    assert problems(path) == []
    assert len(load([path]).contracts[0].falsifiers[0].if_fails) == 900_000
