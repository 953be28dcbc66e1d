"""The hand-written recipes need no library but torch, so what the comparison says of them is held here."""

from pathlib import Path

import pytest

import pv

CONTRACTS = Path(__file__).parents[2] / "contracts"
DEFECTS = {
    "kd-loss": ["F-KD-EQUATION-001", "F-KD-VALUE-001", "F-KD-INV-003"],
    "kd-domain": ["F-KD-MASK-002", "F-KD-INF-004", "F-KD-VOCAB-001"],
}


def broken(contract: str, names: list[str]) -> dict[str, list[str]]:
    """Return the falsified claims of each subject, in the order of the contract."""
    found = pv.compare(contract, paths=[CONTRACTS], subjects=names, only=DEFECTS[contract], examples=10)
    assert found.exit_code == 0
    return {c.name: [row.id for row in found.rows if c.outcome(row).value == "falsified"] for c in found.columns}


def test_each_recipe_breaks_what_it_is_known_to_break() -> None:
    names = ["recipe-tutorial", "recipe-batchmean", "recipe-mean"]
    value, domain = broken("kd-loss", names), broken("kd-domain", names)
    assert {"F-KD-MASK-002", "F-KD-INF-004"} <= set(domain["recipe-tutorial"])
    assert (value["recipe-batchmean"], domain["recipe-batchmean"]) == ([], ["F-KD-MASK-002", "F-KD-INF-004"])
    assert {"F-KD-EQUATION-001", "F-KD-VALUE-001"} <= set(value["recipe-mean"])
    assert "F-KD-VOCAB-001" in domain["recipe-mean"]


@pytest.mark.parametrize("contract", sorted(DEFECTS))
@pytest.mark.parametrize("library", ["torchtune", "trl", "liger", "modelopt", "recipe"])
def test_a_corrected_copy_holds_where_its_original_broke(library: str, contract: str) -> None:
    name, only = f"{library}-corrected", DEFECTS[contract]
    found = pv.compare(contract, paths=[CONTRACTS], subjects=[name], only=only, examples=10, strict=True)
    (column,) = found.columns
    assert {column.outcome(row).value for row in found.rows} <= {"held", "not claimed"}
    assert found.exit_code == 0
