"""Claims: their limits, their boxes, and the locations of their keys."""

from pathlib import Path
from typing import Any

from pv.contract.claims import Falsifier, Harness
from pv.contract.finding import Location

HERE, THERE = Location(Path("c.yaml"), 3), Location(Path("c.yaml"), 7, 2)
BASE: dict[str, Any] = {"id": "F", "rule": "r", "prediction": "p", "if_fails": "i", "location": HERE}


def test_key_without_a_location_has_that_of_its_claim() -> None:
    claim = Falsifier(**BASE, places={"kills/0": THERE})
    assert (claim.at("kills/0"), claim.at("kills/1")) == (THERE, HERE)


def test_limit_of_both_engines_is_the_sum() -> None:
    assert Harness(**BASE, limit_s=4.0, engine="both").whole_limit_s == 8.0
    assert Harness(**BASE, limit_s=4.0, engine="symbolic").whole_limit_s == 4.0


def test_box_names_every_bound_and_the_precondition() -> None:
    harness = Harness(**BASE, bounds={"n": "0..8", "on": "bool"}, requires="n > 0 or on")
    assert harness.box == "n 0..8; on bool, where n > 0 or on"
    assert Harness(**BASE, bounds={"n": "0..8"}).box == "n 0..8"
