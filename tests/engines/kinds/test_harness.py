"""Harnesses: the engines that try them, and the digest of their box."""

from dataclasses import replace
from pathlib import Path

import pytest

from pv.contract.claims import Harness
from pv.contract.names import Target
from pv.engines.code import Code
from pv.engines.kind import How
from pv.engines.kinds import kind_of
from pv.errors import UsageError
from pv.source.project import find_project
from tests.engines.kinds.claims import CLAIMS, CONTRACT

CODE = Code(find_project(Path(__file__).parents[2] / "bad_contracts" / "project"), Target("tiny"))


def harness(**fields) -> Harness:
    found = CLAIMS["harness"]
    assert isinstance(found, Harness)
    return replace(found, **fields)


@pytest.mark.parametrize(
    ("fields", "engines"),
    [
        ({"engine": "both"}, ("exhaustive", "symbolic")),
        ({"engine": "symbolic"}, ("symbolic",)),
        ({"engine": "", "bounds": {"n": "0..8"}}, ("exhaustive",)),
        ({"engine": "", "bounds": {"n": "0..9999999"}}, ("symbolic",)),
    ],
)
def test_engines_are_those_asked_for_or_those_that_fit_the_box(fields, engines) -> None:
    claim = harness(**fields)
    assert kind_of(claim).payload(CODE, CONTRACT, claim, How()).engines == engines


def test_replayed_point_is_checked_and_passed_on() -> None:
    claim = harness(requires="n > 1")
    kind = kind_of(claim)
    kind.check_replay('{"n": 2}', CONTRACT, claim)
    with pytest.raises(UsageError, match="n > 1 does not hold there"):
        kind.check_replay('{"n": 1}', CONTRACT, claim)
    assert kind.payload(CODE, CONTRACT, claim, How(replay='{"n": 2}')).replay == {"n": 2}


def test_clause_has_the_box_and_the_engine() -> None:
    claim = harness(requires="n > 1", engine="symbolic")
    assert kind_of(claim).clause(claim) == {"box": [{"n": "0..8"}, "n > 1", "symbolic"]}
    assert kind_of(claim).scope(claim) == "n 0..8, where n > 1"
