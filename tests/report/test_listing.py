"""What `pv list` and `pv show` print."""

import json
from pathlib import Path

import pv
from pv.report import listing

CONTRACTS = pv.load([Path(__file__).parents[2] / "contracts"]).contracts


def test_programs_get_every_claim_with_what_it_is_tried_by() -> None:
    listed = {each["id"]: each for each in json.loads(listing.render(CONTRACTS, "json"))}
    assert listed.keys() == {contract.id for contract in CONTRACTS}
    (harness,) = (each for each in listed["distill-smoke"]["harnesses"] if each["id"] == "H-LIMIT-COUNT-001")
    assert (harness["requires"], harness["engine"], harness["bounds"]["limit"]) == ("", "", "1..64")
    requires = {each["id"]: each["requires"] for contract in listed.values() for each in contract["harnesses"]}
    assert requires["H-SCHEDULE-STEPS-001"] == "epoch <= epochs and done <= per_epoch"
    assert harness["predicate"] == "falsifiers/distill_smoke/prove_steps.py::prove_early_break_is_exact"
    (equation,) = (each for each in listed["kd-loss"]["falsifiers"] if each["id"] == "F-KD-EQUATION-002")
    assert (equation["test"], equation["equation"]) == (None, "kd_gradient")
