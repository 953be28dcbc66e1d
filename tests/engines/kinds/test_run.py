"""Predicates of a reference run: the run is executed first, or its record is there."""

from dataclasses import replace
from pathlib import Path

import pytest

from pv.contract.names import Target, UnknownName
from pv.engines.code import Code
from pv.engines.kind import How
from pv.engines.kinds import kind_of
from pv.errors import UsageError
from pv.source.project import find_project
from tests.engines.kinds.claims import CLAIMS, CONTRACT, RUN

RUNS = kind_of(CLAIMS["run"])
CODE = Code(find_project(Path(__file__).parents[2] / "bad_contracts" / "project"), Target("tiny"))


def test_run_has_no_example_to_replay() -> None:
    with pytest.raises(UsageError, match="reads the run 'once'"):
        kind_of(CLAIMS["run"]).check_replay('{"n": 1}', CONTRACT, CLAIMS["run"])


def test_run_of_a_claim_is_the_declared_one() -> None:
    assert RUNS.run_of(CONTRACT, CLAIMS["run"]) is RUN
    with pytest.raises(UnknownName, match="unknown run 'once'"):
        RUNS.run_of(
            type(CONTRACT)(id="c", version="1", description="", location=RUN.location, strict=True), CLAIMS["run"]
        )


def test_payload_has_the_callable_only_where_the_run_is_executed_first() -> None:
    claim = replace(CLAIMS["run"], test=CLAIMS["property"].test)
    contract = replace(CONTRACT, runs=(replace(RUN, callable=CLAIMS["property"].test),))
    recorded = RUNS.payload(CODE, contract, claim, How(directory="d"))
    assert (recorded.callable, recorded.directory) == (None, "d")
    first = RUNS.payload(CODE, contract, claim, How(directory="d", execute={"steps": 1}))
    assert first.callable is not None
    assert (first.callable.name, first.arguments) == ("falsify_double", {"steps": 1})


def test_binding_names_the_run() -> None:
    assert RUNS.binding(CLAIMS["run"]) == f"{CLAIMS['run'].test} on run once"
