"""What is no text, or no YAML, is refused at its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")
QUOTE = "check the indentation of this line, and quote a value that has ': ', ' #', or inside [ ] or { } a comma"
EMPTY = "1:1 PV002 the file is empty; a contract starts with 'schema: pv/1'"
NO_TAG = "contracts are plain data, without tags"
NOT_UTF8 = "save the file as UTF-8"
CONTROL = "remove it, or write it as an escape"

BYTES = [
    ("binary", bytes(range(256)), "2:118 PV001 is not UTF-8: byte 0x80; " + NOT_UTF8),
    ("nul bytes", b"schema: pv/1\nid: a\0b\n", f"2:6 PV002 not YAML: the control character '\\x00'; {CONTROL}"),
    ("utf-16 without", GOOD.encode("utf-16-le"), f"1:2 PV002 not YAML: the control character '\\x00'; {CONTROL}"),
    ("latin-1", "a: é\nb: ü".encode("latin-1"), "1:4 PV001 is not UTF-8: byte 0xe9; " + NOT_UTF8),
    ("huge", b"a: " + b"x" * (1 << 20), "1:1 PV003 is over 1 MiB; split the contract"),
]

SYNTAX = [
    ("empty", "", EMPTY),
    (
        "truncated in a quote",
        'schema: "pv/1',
        "1:14 PV002 not YAML: found unexpected end of stream while scanning a quoted scalar",
    ),
    (
        "a tab as indentation",
        "a:\n\tb: 1",
        "2:1 PV002 not YAML: found character that cannot start any token while scanning for the next token",
    ),
    (
        "an unquoted colon",
        "a: b: c",
        f"1:5 PV002 not YAML: mapping values are not allowed in this context; {QUOTE}",
    ),
    (
        "bad indentation",
        "a:\n  b: 1\n c: 2",
        f"3:2 PV002 not YAML: did not find expected key while parsing a block mapping; {QUOTE}",
    ),
]


@pytest.mark.parametrize(("content", "says"), [pytest.param(*rest, id=name) for name, *rest in [*BYTES, *SYNTAX]])
def test_what_is_no_yaml_is_refused_at_its_place(
    content: str | bytes, says: str, write: Write, refusals: Refusals
) -> None:
    assert refusals(write(content)) == [says]
