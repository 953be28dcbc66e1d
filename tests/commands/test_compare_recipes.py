"""The hand-written recipes need no library but torch, so what the comparison says of them is held here."""

from pathlib import Path

import pytest

import pv

CONTRACTS = Path(__file__).parents[2] / "contracts"
DEFECTS = {
    "kd-loss": ["F-KD-EQUATION-001", "F-KD-VALUE-001", "F-KD-LOSS-INV-003"],
    "kd-domain": ["F-KD-MASK-002", "F-KD-INF-004", "F-KD-VOCAB-001"],
}


LIBRARIES = ["torchtune", "trl", "liger", "modelopt", "recipe"]
RECIPES = ["recipe-tutorial", "recipe-batchmean", "recipe-mean"]


@pytest.mark.parametrize("contract", DEFECTS)
def test_recipes_break_what_they_are_known_to_break_and_corrected_copies_hold(contract: str) -> None:
    names = [*RECIPES, *(f"{library}-corrected" for library in LIBRARIES)]
    found = pv.compare(contract, paths=[CONTRACTS], subjects=names, only=DEFECTS[contract], examples=10)
    assert found.exit_code == 0
    outcomes = {each.name: {row.id: each.outcome(row).value for row in found.rows} for each in found.columns}
    broken = {name: [claim for claim, each in outcomes[name].items() if each == "falsified"] for name in RECIPES}
    if contract == "kd-loss":
        assert broken["recipe-batchmean"] == []
        assert {"F-KD-EQUATION-001", "F-KD-VALUE-001"} <= set(broken["recipe-mean"])
    else:
        assert {"F-KD-MASK-002", "F-KD-INF-004"} <= set(broken["recipe-tutorial"])
        assert broken["recipe-batchmean"] == ["F-KD-MASK-002", "F-KD-INF-004"]
        assert "F-KD-VOCAB-001" in broken["recipe-mean"]
    for library in LIBRARIES:
        corrected = set(outcomes[f"{library}-corrected"].values())
        assert "held" in corrected <= {"held", "not claimed"}, library
