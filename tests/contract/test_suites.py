"""Suites: every claim of one is killed by planted faults, and another subject has the claims without the faults."""

from dataclasses import replace

import pytest

from pv.contract.load import load_file
from pv.contract.model import OtherSubject
from pv.contract.names import Target
from pv.contract.suites import is_suite, join_suite, suites
from tests.results.handmade import HERE, contract


@pytest.mark.parametrize("name", sorted(suites()))
def test_every_claim_of_a_suite_names_a_fault_that_it_detects(name: str) -> None:
    suite, findings = load_file(suites()[name])
    assert suite is not None and findings == [] and is_suite(suite)
    assert suite.id == name
    # The suite's own loop is of one process: faults of ranks are planted in tests/suites/training_loop/claims.
    mine = (claim for claim in suite.falsifiers if "ranks" not in claim.options["needs"])
    assert [claim.id for claim in mine if not claim.kills] == []


def test_mutant_of_a_contract_is_killed_by_the_claims_of_its_suite_that_it_names() -> None:
    suite, _ = load_file(suites()["training-loop"])
    assert suite is not None
    fault = replace(suite.mutants[0], id="fault", killed_by=(suite.falsifiers[1].id,))
    joined = join_suite(replace(suite, id="mine", falsifiers=(), mutants=(fault,)), suite)
    assert [claim.kills for claim in joined.falsifiers][:3] == [(), ("fault",), ()]


def test_subjects_that_claim_as_each_other_end_the_search() -> None:
    pair = [OtherSubject(name=a, target=Target(a), location=HERE, claims_as=b) for a, b in ("xy", "yx")]
    assert contract(subjects=tuple(pair)).not_claimed(Target("x")) == {}
