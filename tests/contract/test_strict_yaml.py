"""Scalars are those of YAML 1.2's core schema, and every value knows where it stands."""

import math
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Location
from pv.contract.strict_yaml import Node, Refused, parse, walk


def tree(folder: Path, text: str) -> Node:
    path = folder / "x.yaml"
    path.write_bytes(text.encode())
    root, findings = parse(path, Path("x.yaml"))
    assert findings == []
    return root


def value_of(folder: Path, scalar: str) -> Any:
    return tree(folder, f"a: {scalar}\n").plain()["a"]


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e-6", 1e-6),
        ("1E+2", 100.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5e1", -5.0),
        ("+1.5", 1.5),
        ("-0.0", -0.0),
        ("1e999", math.inf),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("+.Inf", math.inf),
        ("0", 0),
        ("-0", 0),
        ("+12", 12),
        ("012", 12),
        ("0o17", 15),
        ("0xfF", 255),
        ("9" * 400, int("9" * 400)),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("null", None),
        ("Null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("y", "y"),
        ("n", "n"),
        ("nULL", "nULL"),
        ("tRUE", "tRUE"),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("0O17", "0O17"),
        ("0X1f", "0X1f"),
        ("-0x1", "-0x1"),
        ("0o8", "0o8"),
        ("1e", "1e"),
        (".", "."),
        ("1.0.0", "1.0.0"),
        ("nan", "nan"),
        ("inf", "inf"),
        (".Nan", ".Nan"),
        ("=", "="),
        ("<<", "<<"),
        ("١٢", "١٢"),
        ("'1'", "1"),
        ('"1e-6"', "1e-6"),
        ("''", ""),
        ("'null'", "null"),
        ('"a\\nb\\u00e9"', "a\nbé"),
        ("'it''s'", "it's"),
        ("|\n  1\n  2", "1\n2\n"),
        ("|-\n  1", "1"),
        (">-\n  1\n  2", "1 2"),
        ("one # two", "one"),
        ("one#two", "one#two"),
        ("[1, 'a', ~]", [1, "a", None]),
        ("{b: 1, c: {}}", {"b": 1, "c": {}}),
    ],
)
def test_a_scalar_is_what_yaml_1_2_says(scalar: str, value: Any, tmp_path: Path) -> None:
    read = value_of(tmp_path, scalar)
    assert (type(read), read) == (type(value), value)
    if isinstance(value, float):
        assert math.copysign(1, read) == math.copysign(1, value)


@pytest.mark.parametrize("scalar", [".nan", ".NaN", ".NAN"])
def test_not_a_number_is_read(scalar: str, tmp_path: Path) -> None:
    assert math.isnan(value_of(tmp_path, scalar))


@pytest.mark.parametrize("digits", [401, 10**5])
def test_digits_beyond_any_use_do_not_make_a_whole_number(digits: int, tmp_path: Path) -> None:
    assert value_of(tmp_path, "9" * digits) == math.inf


@pytest.mark.parametrize("key", ["1", "1e3", "true", "null", "no", "2026-11-20", "'a b'", "~"])
def test_a_key_is_text_as_it_is_written(key: str, tmp_path: Path) -> None:
    assert list(tree(tmp_path, f"{key}: 1").plain()) == [key.strip("'")]


def test_the_raw_text_of_a_number_is_kept(tmp_path: Path) -> None:
    node = tree(tmp_path, "a: 1.0\n").get("a")
    assert node is not None
    assert (node.value, node.text) == (1.0, "1.0")


PLACES = """\
a: 1
é: {b: two, ü: [x, "y"]}
c:
- d
-   e: |
      text
      more
    f:
  # a remark
"g h": 'i'
"""


def places(root: Node) -> dict[str, tuple[int, int]]:
    return {node.text: (node.location.line, node.location.column) for node in walk(root) if node.text}


def test_every_scalar_knows_its_line_and_column(tmp_path: Path) -> None:
    assert places(tree(tmp_path, PLACES)) == {
        "1": (1, 4),
        "two": (2, 8),
        "x": (2, 17),
        "y": (2, 20),
        "d": (4, 3),
        "text\nmore\n": (5, 8),
        "i": (10, 8),
    }


def test_every_key_knows_its_line_and_column(tmp_path: Path) -> None:
    keys = {
        key: (location.line, location.column)
        for node in walk(tree(tmp_path, PLACES))
        for key, location in node.keys.items()
    }
    assert keys == {
        "a": (1, 1),
        "é": (2, 1),
        "b": (2, 5),
        "ü": (2, 13),
        "c": (3, 1),
        "e": (5, 5),
        "f": (8, 5),
        "g h": (10, 1),
    }


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_places_do_not_depend_on_line_ends_or_a_mark(end: str, mark: str, tmp_path: Path) -> None:
    assert places(tree(tmp_path, mark + PLACES.replace("\n", end))) == places(tree(tmp_path, PLACES))


def test_a_place_names_the_file_as_it_is_shown(tmp_path: Path) -> None:
    assert str(tree(tmp_path, "a: 1").location) == "x.yaml:1:1"


def test_a_path_leads_to_the_value_or_to_what_is_nearest(tmp_path: Path) -> None:
    root, file = tree(tmp_path, PLACES), Path("x.yaml")
    assert root.at(["é", "ü", 1]) == Location(file, 2, 20)
    assert root.at(["é", "ü", 7]) == Location(file, 2, 16)
    assert root.at(["é", "none", "b"]) == Location(file, 2, 4)
    assert root.at([]) == Location(file, 1, 1)


def test_a_duplicate_key_keeps_the_first_value_and_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    root, findings = parse(path, Path("x.yaml"))
    assert root.plain() == {"a": 1, "b": {"c": 1}}
    assert [str(finding) for finding in findings] == [
        "x.yaml:2:11 PV005 duplicate key 'c' (first defined at line 2); remove one of them",
        "x.yaml:3:1 PV005 duplicate key 'a' (first defined at line 1); remove one of them",
    ]


def test_thirty_one_levels_are_read_and_one_more_is_not(tmp_path: Path) -> None:
    assert value_of(tmp_path, "[" * 31 + "]" * 31) is not None
    with pytest.raises(Refused, match=r"^x\.yaml:1:35 PV003 nested deeper than 32 levels; flatten the contract$"):
        value_of(tmp_path, "[" * 32 + "]" * 32)


def test_a_refusal_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        tree(tmp_path, "a: *b")
    assert str(refused.value) == str(refused.value.finding)
    assert refused.value.finding.code == "PV004"
