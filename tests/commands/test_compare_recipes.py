"""The hand-written recipes need no library but torch, so what the comparison says of them is held here."""

from pathlib import Path

import pytest

import pv
from pv.results.comparison import Comparison

CONTRACTS = Path(__file__).parents[2] / "contracts"
DEFECTS = ["F-KD-EQUATION-001", "F-KD-VALUE-001", "F-KD-INV-003", "F-KD-MASK-002", "F-KD-INF-004", "F-KD-VOCAB-001"]


def outcomes(found: Comparison) -> dict[str, dict[str, str]]:
    return {c.name: {f.id: c.outcome(f).value for f in found.rows} for c in found.columns}


def test_each_recipe_breaks_what_it_is_known_to_break() -> None:
    names = ["recipe-tutorial", "recipe-batchmean", "recipe-mean"]
    found = pv.compare("kd-loss", paths=[CONTRACTS], subjects=names, only=DEFECTS, examples=10)
    broken = {name: [f for f, o in of.items() if o == "falsified"] for name, of in outcomes(found).items()}
    assert {"F-KD-MASK-002", "F-KD-INF-004"} <= set(broken["recipe-tutorial"])
    assert broken["recipe-batchmean"] == ["F-KD-MASK-002", "F-KD-INF-004"]
    assert {"F-KD-EQUATION-001", "F-KD-VALUE-001", "F-KD-VOCAB-001"} <= set(broken["recipe-mean"])
    assert found.exit_code == 0


@pytest.mark.parametrize("library", ["torchtune", "trl", "liger", "modelopt", "recipe"])
def test_a_corrected_copy_holds_where_its_original_broke(library: str) -> None:
    name = f"{library}-corrected"
    found = pv.compare("kd-loss", paths=[CONTRACTS], subjects=[name], only=DEFECTS, examples=10, strict=True)
    assert set(outcomes(found)[name].values()) <= {"held", "not claimed"}
    assert found.exit_code == 0
