"""What `pv list` shows of the contracts of this project."""

import json
from pathlib import Path

import pv
from pv.report import listing

CONTRACTS = pv.load([Path(__file__).parents[2] / "contracts"]).contracts


def test_programs_get_every_claim_with_what_it_is_tried_by() -> None:
    listed = {each["id"]: each for each in json.loads(listing.render(CONTRACTS, "json"))}
    assert listed.keys() == {contract.id for contract in CONTRACTS}
    (harness,) = (each for each in listed["distill-smoke"]["harnesses"] if each["id"] == "H-SMOKE-COUNT-002")
    assert harness["requires"] == "epoch <= epochs and done <= per_epoch"
    assert (harness["engine"], harness["bounds"]["done"]) == ("", "0..1000000")
    assert harness["predicate"] == "falsifiers/schedule/prove_schedule.py::prove_each_event_follows"
    (equation,) = (each for each in listed["kd-loss"]["falsifiers"] if each["id"] == "F-KD-EQUATION-002")
    assert (equation["test"], equation["equation"]) == (None, "kd_gradient")


def test_people_get_a_line_for_each_claim_and_one_for_how_it_is_tried() -> None:
    lines = listing.render(CONTRACTS, "text").splitlines()
    assert len(lines) == sum(1 + 2 * len(contract.claims) for contract in CONTRACTS)
    at = lines.index("  H-SMOKE-COUNT-002  [cpu]  The cut is exact at any size")
    assert lines[at + 1].startswith(
        "      falsifiers/schedule/prove_schedule.py::prove_each_event_follows  over epochs 1..1000000; "
    )
    assert lines[at + 1].endswith("  kills one-step-too-many, limit-lost-in-long-runs")
