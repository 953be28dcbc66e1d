"""The reference page is the one that the schema gives, and the schema describes every key."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pv.contract.check import schema
from pv.contract.reference import markdown

PAGE = Path(__file__).parents[2] / "docs/contract-reference.md"
NAMES = ("contract", "existing", "report", "comparison", "evidence", "mutants")


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        own = node.get("properties") if isinstance(node.get("properties"), dict) else {}
        yield from ((f"{path}/{name}", each) for name, each in own.items())
        for name, each in node.items():
            yield from properties(each, f"{path}/{name}")
    elif isinstance(node, list):
        for each in node:
            yield from properties(each, path)


def test_every_key_is_described() -> None:
    found = dict(properties(schema("contract")))
    assert len(found) > 100
    assert [path for path, node in found.items() if not node.get("description")] == []


def test_page_is_current() -> None:
    assert PAGE.read_text() == markdown(schema("contract")), (
        "run `pv schema --format markdown > docs/contract-reference.md`"
    )


def test_page_has_a_row_for_every_key() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    names = {row.split("`")[1] for row in rows if "`" in row}
    assert {path.rpartition("/")[2] for path, _ in properties(schema("contract"))} <= names


def test_required_keys_are_bold_and_types_are_words() -> None:
    node = {
        "required": ["a"],
        "properties": {
            "a": {"$ref": "#/$defs/slug", "description": "the id"},
            "b": {"type": "array", "items": {"enum": ["x", "y"]}},
            "c": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
        },
        "$defs": {"slug": {"type": "string"}},
    }
    assert [line for line in markdown(node).splitlines() if line.startswith("| ")][1:] == [
        "| **`a`** | id | The id. |",
        "| `b` | list of `x`, `y` |  |",
        "| `c` | mapping of names to integer from 1 |  |",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_id_is_an_absolute_uri_with_name_and_version(name: str) -> None:
    address = urlsplit(schema(name)["$id"])
    assert (address.scheme, address.fragment) == ("urn", "")
    assert re.fullmatch(rf"pv:{name}:[1-9]", address.path)
