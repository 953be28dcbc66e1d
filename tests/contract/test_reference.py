"""The reference page is the one that the schema gives, and the schema describes every key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pv.contract.check import schema
from pv.contract.reference import markdown

PAGE = Path(__file__).parents[2] / "docs/contract-reference.md"


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        own = node.get("properties")
        yield from ((f"{path}/{name}", each) for name, each in (own if isinstance(own, dict) else {}).items())
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
    is_current = PAGE.read_text() == markdown(schema("contract"))
    assert is_current, "run `pv schema --format markdown > docs/contract-reference.md`"
