"""Tests with Hypothesis: the seed and the number of examples that a worker gets."""

from pathlib import Path

from pv.contract.names import Target
from pv.engines.code import Code
from pv.engines.kind import How, seed_of
from pv.engines.kinds import kind_of
from pv.source.project import find_project
from tests.engines.kinds.claims import CLAIMS, CONTRACT

CODE = Code(find_project(Path(__file__).parents[2] / "bad_contracts" / "project"), Target("tiny"))
CLAIM = CLAIMS["property"]


def test_number_of_examples_is_the_claims_own_unless_another_is_asked_for() -> None:
    kind = kind_of(CLAIM)
    assert kind.payload(CODE, CONTRACT, CLAIM, How()).examples == CLAIM.examples == 100
    assert kind.payload(CODE, CONTRACT, CLAIM, How(examples=7)).examples == 7


def test_seed_depends_on_the_claim_and_on_the_user() -> None:
    payload = kind_of(CLAIM).payload(CODE, CONTRACT, CLAIM, How(seed=3))
    assert payload.seed == seed_of(CLAIM.id, 3) not in (seed_of("G", 3), seed_of(CLAIM.id, 4))


def test_binding_is_the_test() -> None:
    assert kind_of(CLAIM).binding(CLAIM) == "falsifiers/falsify_tiny.py::falsify_double"
