from pv.suites.causal_lm.model import CausalLM
from tests.suites.causal_lm.trying import tried


def test_model_makes_every_claim_and_all_hold() -> None:
    assert tried(CausalLM) == ({}, set())
