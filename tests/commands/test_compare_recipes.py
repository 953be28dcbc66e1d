"""The hand-written recipes need no library but torch, so what the comparison says of them is held here."""

from pathlib import Path

import pytest

import pv

CONTRACTS = Path(__file__).parents[2] / "contracts"
DEFECTS = {
    "kd-loss": ["F-KD-EQUATION-001", "F-KD-VALUE-001", "F-KD-INV-003"],
    "kd-domain": ["F-KD-MASK-002", "F-KD-INF-004", "F-KD-VOCAB-001"],
}


LIBRARIES = ["torchtune", "trl", "liger", "modelopt", "recipe"]
RECIPES = ["recipe-tutorial", "recipe-batchmean", "recipe-mean"]

Outcomes = dict[str, dict[str, str]]
"""The outcome of each claim, by subject."""


@pytest.fixture(scope="module", params=sorted(DEFECTS))
def outcomes(request: pytest.FixtureRequest) -> tuple[str, Outcomes]:
    """The claims about one contract's defects, tried on every recipe and every corrected copy."""
    contract: str = request.param
    names = [*RECIPES, *(f"{library}-corrected" for library in LIBRARIES)]
    found = pv.compare(contract, paths=[CONTRACTS], subjects=names, only=DEFECTS[contract], examples=10)
    assert found.exit_code == 0
    return contract, {c.name: {row.id: c.outcome(row).value for row in found.rows} for c in found.columns}


def test_each_recipe_breaks_what_it_is_known_to_break(outcomes: tuple[str, Outcomes]) -> None:
    contract, found = outcomes
    broken = {name: [claim for claim, each in found[name].items() if each == "falsified"] for name in RECIPES}
    if contract == "kd-loss":
        assert broken["recipe-batchmean"] == []
        assert {"F-KD-EQUATION-001", "F-KD-VALUE-001"} <= set(broken["recipe-mean"])
    else:
        assert {"F-KD-MASK-002", "F-KD-INF-004"} <= set(broken["recipe-tutorial"])
        assert broken["recipe-batchmean"] == ["F-KD-MASK-002", "F-KD-INF-004"]
        assert "F-KD-VOCAB-001" in broken["recipe-mean"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_corrected_copy_holds_where_its_original_broke(library: str, outcomes: tuple[str, Outcomes]) -> None:
    found = outcomes[1][f"{library}-corrected"]
    assert set(found.values()) <= {"held", "not claimed"}
    assert "held" in found.values()
