"""The compiled predicate of a schema accepts exactly what jsonschema accepts."""

import json
from typing import Any

import pytest

from pv.contract.accepts import Unsupported, accepts


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
