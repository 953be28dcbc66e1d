"""The reference page is the one that the schema gives, and the schema describes every key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pv.contract.check import schema
from pv.contract.reference import markdown

PAGE = Path(__file__).parents[2] / "docs/contract-reference.md"


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Yield the path of each key that a schema knows, its schema, and whether it is required."""
    if isinstance(node, dict):
        own, required = node.get("properties"), node.get("required", ())
        yield from ((f"{path}/{key}", own[key], key in required) for key in (own if isinstance(own, dict) else ()))
    for key, each in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from properties(each, f"{path}/{key}")


def test_every_key_is_described() -> None:
    found = list(properties(schema("contract")))
    assert len(found) > 100
    assert [path for path, node, _ in found if not node.get("description")] == []


def test_page_is_current() -> None:
    is_current = PAGE.read_text() == markdown(schema("contract"))
    assert is_current, "run `pv schema --format markdown > docs/contract-reference.md`"
