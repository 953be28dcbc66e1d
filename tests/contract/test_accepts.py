"""The compiled predicate of a schema accepts exactly what jsonschema accepts."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pv.contract.accepts import Unsupported, accepts
from pv.contract.check import _validator
from pv.contract.load import schema
from pv.contract.strict_yaml import parse

GOOD = Path(__file__).parents[1] / "bad_contracts" / "good.yaml"
ODD = (None, True, 0, -1, 2.0, float("nan"), "", "x\n", [], ["a", "a"], [1, True], {}, {"": 1})


def near_misses(value: Any) -> Iterator[Any]:
    """Copies in which one value, wherever it is, is another."""
    yield from copy.deepcopy(ODD)
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for changed in near_misses(value[key]):
            other = copy.copy(value)
            other[key] = changed
            yield other


def test_a_contract_and_near_misses_are_judged_as_by_jsonschema() -> None:
    whole, predicate = parse(GOOD, GOOD)[0].plain(), accepts(schema("contract"))
    assert predicate(whole)
    for changed in near_misses(whole):
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
