"""The compiled predicate of a schema accepts exactly what jsonschema accepts."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pv.contract.accepts import Unsupported, accepts
from pv.contract.check import _validator, schema
from pv.contract.strict_yaml import parse

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / "contracts").glob("*.yaml")), ROOT / "tests" / "bad_contracts" / "good.yaml"]
ODD = (
    None,
    True,
    0,
    1,
    -1,
    2.0,
    2.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "x\n",
    [],
    ["a", "a"],
    [1, True],
    {},
    {"": 1},
)


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def _changed(value: Any, draw: Random) -> Any:
    """Return a copy with one value exchanged, removed or added."""
    changed = copy.deepcopy(value)
    inside = draw.choice(list(_containers(changed)))
    key = draw.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
    action = draw.choice(["exchange", "exchange", "remove", "add"])
    if action == "remove":
        del inside[key]
    elif action == "add" and isinstance(inside, dict):
        inside["unknown"] = draw.choice(ODD)
    elif action == "add":
        inside.append(inside[key])
    else:
        inside[key] = draw.choice(ODD)
    return changed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_contracts_and_near_misses_are_judged_as_by_jsonschema(path: Path) -> None:
    tree, _ = parse(path, path)
    whole, predicate, draw = tree.plain(), accepts(schema("contract")), Random(0)
    assert predicate(whole)
    assert _validator("contract").is_valid(whole)
    for key, section in whole.items():
        small = {
            **{k: whole[k] for k in ("schema", "metadata")},
            key: section[:2] if isinstance(section, list) else section,
        }
        for _ in range(60):
            changed = _changed(small, draw)
            assert predicate(changed) == _validator("contract").is_valid(changed), changed


@pytest.mark.parametrize(
    "unsupported",
    [
        {"not": {}},
        {"enum": [1]},
        {"const": True},
        {"prefixItems": [], "items": {}},
        {"$ref": "other.json"},
        {"patternProperties": {}, "additionalProperties": False},
    ],
    ids=json.dumps,
)
def test_a_keyword_without_a_predicate_is_refused(unsupported: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        accepts(unsupported)
