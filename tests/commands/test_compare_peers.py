"""docs/peers.md has the claims and subjects of the compared contracts, and every fault that it names can be shown."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import pv
from falsifiers.peers.reproduce import FAULTS, Fault

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
BY_ID = {c.id: c for c in pv.load([ROOT / "contracts"]).contracts}
CONTRACTS = [BY_ID["kd-loss"], BY_ID["kd-domain"]]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after the heading."""
    blocks = PAGE[PAGE.index(f"{heading}\n") :].split("\n\n")
    table = next(block for block in blocks if block.startswith("| ")).splitlines()
    return [[result.strip() for result in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def test_the_matrix_has_every_claim_and_every_subject() -> None:
    head, _, *body = rows("## The matrix")
    for contract in CONTRACTS:
        assert head == ["claim", "own", *(subject.name for subject in contract.subjects)], contract.id
    claims = [row[0].split()[0] for row in body if not row[0].startswith("*")]
    assert claims == [falsifier.id.removeprefix("F-KD-") for contract in CONTRACTS for falsifier in contract.falsifiers]
    assert {len(row) for row in body} == {len(head)}


def test_the_matrix_marks_exactly_what_is_not_claimed() -> None:
    _, _, *body = rows("## The matrix")
    for column, subject in enumerate(CONTRACTS[0].subjects, 2):
        marked = {f"F-KD-{row[0].split()[0]}" for row in body if row[column] == "-"}
        unclaimed = {id_ for contract in CONTRACTS for id_ in contract.not_claimed(subject.target)}
        assert marked == unclaimed, subject.name


def test_every_red_cell_has_its_fault() -> None:
    head, _, *body = rows("## The matrix")
    red = {(head[column], row[0].split()[0]) for row in body for column, result in enumerate(row) if result == "**F**"}
    _, _, *faults = rows("## Each fault, by hand")
    told = set()
    for group in (part for row in faults for part in row[1].split("; ")):
        subjects, claims = group.split(": ")
        told |= {(subject, claim) for subject in subjects.split(", ") for claim in claims.split(", ")}
    assert told == red


def test_every_fault_is_shown_by_functions_that_are_there() -> None:
    _, _, *faults = rows("## Each fault, by hand")
    named = {name.strip("`") for row in faults for name in row[3].split(", ")}
    assert named == {fault.show.__name__ for fault in FAULTS}


FOLDER = Path(__file__).parents[2] / "contracts"
DEFECTS = ["F-KD-MASK-002", "F-KD-INF-004", "F-KD-VOCAB-001"]
LIBRARIES = ["torchtune", "trl", "liger", "modelopt", "recipe"]
RECIPES = ["recipe-tutorial", "recipe-batchmean", "recipe-mean"]


def test_recipes_break_what_they_are_known_to_break_and_corrected_copies_hold() -> None:
    names = [*RECIPES, *(f"{library}-corrected" for library in LIBRARIES)]
    found = pv.compare("kd-domain", paths=[FOLDER], subjects=names, only=DEFECTS, examples=10)
    assert found.exit_code == 0
    outcomes = {each.name: {row.id: each.outcome(row).value for row in found.rows} for each in found.columns}
    broken = {name: [claim for claim, each in outcomes[name].items() if each == "falsified"] for name in RECIPES}
    assert {"F-KD-MASK-002", "F-KD-INF-004"} <= set(broken["recipe-tutorial"])
    assert broken["recipe-batchmean"] == ["F-KD-MASK-002", "F-KD-INF-004"]
    assert "F-KD-VOCAB-001" in broken["recipe-mean"]
    for library in LIBRARIES:
        corrected = set(outcomes[f"{library}-corrected"].values())
        assert "held" in corrected <= {"held", "not claimed"}, library


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.show.__name__)
def test_a_fault_reproduces_with_the_library_alone(fault: Fault) -> None:
    try:
        version(fault.package)
    except PackageNotFoundError:
        pytest.skip(f"{fault.package} is not installed: it comes with the extra `peers`")
    seen = fault.show()
    assert fault.is_wrong(seen), (
        f"{fault.name}: {fault.package} answers {seen}; is it mended? It should be {fault.right}"
    )
