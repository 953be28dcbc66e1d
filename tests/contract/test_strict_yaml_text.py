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
    ("utf-16 with a mark", GOOD.encode("utf-16"), "1:1 PV001 is not UTF-8: byte 0xff; " + NOT_UTF8),
    ("utf-16 without", GOOD.encode("utf-16-le"), f"1:2 PV002 not YAML: the control character '\\x00'; {CONTROL}"),
    ("utf-32", GOOD.encode("utf-32"), "1:1 PV001 is not UTF-8: byte 0xff; " + NOT_UTF8),
    ("latin-1", "a: é\nb: ü".encode("latin-1"), "1:4 PV001 is not UTF-8: byte 0xe9; " + NOT_UTF8),
    ("latin-1 behind utf-8", "é: ".encode() + "ü".encode("latin-1"), "1:4 PV001 is not UTF-8: byte 0xfc; " + NOT_UTF8),
    ("cut inside a character", "schema: é".encode()[:-1], "1:9 PV001 is not UTF-8: byte 0xc3; " + NOT_UTF8),
    ("surrogate", b"a: \xed\xa0\x80", "1:4 PV001 is not UTF-8: byte 0xed; " + NOT_UTF8),
    ("huge", b"a: " + b"x" * (1 << 20), "1:1 PV003 is over 1 MiB; split the contract"),
    (
        "control character",
        b"schema: pv/1\na: \x1b[31m",
        f"2:4 PV002 not YAML: the control character '\\x1b'; {CONTROL}",
    ),
]

SYNTAX = [
    ("empty", "", EMPTY),
    ("only a mark", "\ufeff", EMPTY),
    ("only comments", "# schema: pv/1\n\n# nothing\n", EMPTY),
    ("only a document start", "---\n", "2:1 PV014 not a contract: expected a mapping; start it with 'schema: pv/1'"),
    (
        "truncated in a quote",
        'schema: "pv/1',
        "1:14 PV002 not YAML: found unexpected end of stream while scanning a quoted scalar",
    ),
    (
        "truncated in a list",
        "schema: [pv/1",
        f"2:1 PV002 not YAML: did not find expected ',' or ']' while parsing a flow sequence; {QUOTE}",
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
        "a stray bracket",
        "a: 1\n]",
        f"2:1 PV002 not YAML: did not find expected key while parsing a block mapping; {QUOTE}",
    ),
    (
        "bad indentation",
        "a:\n  b: 1\n c: 2",
        f"3:2 PV002 not YAML: did not find expected key while parsing a block mapping; {QUOTE}",
    ),
    ("a bad escape", 'a: "\\q"', "1:5 PV002 not YAML: found unknown escape character while parsing a quoted scalar"),
    (
        "an escaped surrogate",
        'a: "\\ud800"',
        "1:7 PV002 not YAML: found invalid Unicode character escape code while parsing a quoted scalar",
    ),
    (
        "an unknown directive's tag",
        "%TAG ! tag:example.org,2000:\n---\n!x a: 1",
        f"3:1 PV004 tag 'tag:example.org,2000:x'; {NO_TAG}",
    ),
    ("a version to come", "%YAML 3.0\n---\na: 1", "1:1 PV002 not YAML: found incompatible YAML document"),
    ("two directives", "%YAML 1.2\n%YAML 1.2\n---\na: 1", "2:1 PV002 not YAML: found duplicate %YAML directive"),
]


@pytest.mark.parametrize(("content", "says"), [pytest.param(*rest, id=name) for name, *rest in [*BYTES, *SYNTAX]])
def test_what_is_no_yaml_is_refused_at_its_place(
    content: str | bytes, says: str, write: Write, refusals: Refusals
) -> None:
    assert refusals(write(content)) == [says]
