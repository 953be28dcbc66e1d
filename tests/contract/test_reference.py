"""The reference page is the one that the schema gives, and the schema describes every key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pv.contract.check import schema
from pv.contract.reference import markdown

PAGE = Path(__file__).parents[2] / "docs/contract-reference.md"


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Yield (path, schema, is required) for every key of a schema."""
    if isinstance(node, dict):
        keys, required = node.get("properties"), node.get("required", ())
        yield from ((f"{path}/{key}", keys[key], key in required) for key in (keys if isinstance(keys, dict) else ()))
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from properties(value, f"{path}/{key}")


def test_every_key_is_described() -> None:
    keys = list(properties(schema("contract")))
    assert len(keys) > 100
    assert [path for path, node, _ in keys if not node.get("description")] == []


def test_page_is_current() -> None:
    is_current = PAGE.read_text() == markdown(schema("contract"))
    assert is_current, "run `pv schema --format markdown > docs/contract-reference.md`"


def test_types_of_keys_of_other_packages_are_named() -> None:
    types = ("boolean", "null", "string", ["integer", "null"])
    nodes = {f"k{number}": {"type": type_, "minimum": 1} for number, type_ in enumerate(types)}
    rows = [row for row in markdown({"properties": nodes}).splitlines() if row.startswith("| `k")]
    values = ["`true` or `false`", "`null`", "text", "integer from 1 or `null`"]
    assert [row.split(" | ")[1] for row in rows] == values
