"""Scalars are resolved by the core schema of YAML 1.2."""

import math
from pathlib import Path
from typing import Any

import pytest

from pv.contract.strict_yaml import parse

SCALARS: dict[str, Any] = {
    "1e-6": 1e-6,
    "1e999": math.inf,
    "0": 0,
    "true": True,
    "null": None,
    "~": None,
    "no": "no",
    "1:30": "1:30",
    "2026-11-20": "2026-11-20",
    "1_000": "1_000",
    "1.0.0": "1.0.0",
    '"1e-6"': "1e-6",
    "|\n  1\n  2": "1\n2\n",
    "one # two": "one",
    "[1, 'a', ~]": [1, "a", None],
    "{b: 1, c: {}}": {"b": 1, "c": {}},
}


@pytest.mark.parametrize("scalar", SCALARS)
def test_scalar_has_the_value_of_yaml_1_2(scalar: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"a: {scalar}\n")
    root, findings = parse(path, Path("x.yaml"))
    value = root.plain()["a"]
    assert (findings, type(value), repr(value)) == ([], type(SCALARS[scalar]), repr(SCALARS[scalar]))


BLOCKS = ["|\n    x + zz", "|\n\n    x + zz", "|2\n      x + zz\n    y"]


@pytest.mark.parametrize("scalar", ["x + zz", '"x + zz"', "'x + zz'", *BLOCKS])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_position_inside_a_scalar_is_that_in_the_file(scalar: str, end: str, tmp_path: Path) -> None:
    text = f"a:\n  b: {scalar}\n"
    (tmp_path / "x.yaml").write_text(text, newline=end)
    root, _ = parse(tmp_path / "x.yaml", Path("x.yaml"))
    position = root.value["a"].value["b"].text_position
    assert position is not None
    before, _, _ = root.value["a"].value["b"].text.partition("zz")
    place = position.locate(before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)
    row = text.split("\n")[place.line - 1]
    assert row[place.column - 1 :].startswith("zz")


def test_location_of_a_missing_value_is_that_of_the_nearest_value_above_it(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: text\nb:\n- 1\n")
    root, _ = parse(tmp_path / "x.yaml", Path("x.yaml"))
    places: list[tuple[list[str | int], int]] = [(["a", 0], 1), (["a", "x"], 1), (["b", 0], 3), (["b", 1, "x"], 3)]
    for path, line in places:
        assert root.at(path).line == line, path
