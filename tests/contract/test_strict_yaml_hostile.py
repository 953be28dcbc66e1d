"""YAML that a contract has no use for, and what is no contract at all, is refused at its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")
NO_MAPPING = "1:1 PV014 not a contract: expected a mapping; start it with 'schema: pv/1'"
NO_ALIAS = "contracts have no anchors or aliases"
NO_TAG = "contracts are plain data, without tags"
DEEP = "nested deeper than 32 levels; flatten the contract"

CONSTRUCTS = [
    ("alias bomb", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", f"1:4 PV004 anchor &a; {NO_ALIAS}"),
    ("alias of nothing", "a: *b", "1:4 PV004 alias *b; write the value out; contracts have no aliases"),
    (
        "python object",
        "a: !!python/object/apply:os.system [x]",
        f"1:4 PV004 tag 'tag:yaml.org,2002:python/object/apply:os.system'; {NO_TAG}",
    ),
    ("two documents", "a: 1\n---\nb: 2", "2:1 PV004 a second document; one contract, one file"),
    ("compound key", "? [a, b]\n: 1", "1:3 PV004 a mapping or list as a key; keys are plain words"),
    (
        "duplicate key",
        GOOD + "subject: tiny\n",
        "15:1 PV005 duplicate key 'subject' (first defined at line 3); remove one of them",
    ),
    ("deep flow", "[" * 1000, f"1:33 PV003 {DEEP}"),
    ("deep block", "".join(" " * i + "a:\n" for i in range(500)), f"32:32 PV003 {DEEP}"),
    ("many values", "[" + "1," * 100_001 + "]", "1:200000 PV003 more than 100000 values; split the contract"),
]

NO_CONTRACT = [
    ("a list", "- schema: pv/1", NO_MAPPING),
    ("another mapping", "a: 1", "1:1 PV014 not a contract: missing key 'schema'; start it with 'schema: pv/1'"),
    ("a format that is a number", "schema: 1", "1:9 PV014 unknown format '1'; this version reads pv/1"),
]


@pytest.mark.parametrize(
    ("content", "says"), [pytest.param(*rest, id=name) for name, *rest in [*CONSTRUCTS, *NO_CONTRACT]]
)
def test_what_no_contract_has_is_refused_at_its_place(
    content: str, says: str, write: Write, refusals: Refusals
) -> None:
    assert refusals(write(content)) == [says]
