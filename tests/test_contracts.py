"""The shape of the contracts: one claim area a file, short files and lines, one scheme of ids."""

import re
from pathlib import Path

import pytest

import pv
from pv.contract.model import Falsifier

ROOT = Path(__file__).parents[1]
CONTRACTS = pv.load([ROOT / "contracts"]).contracts
FILES = sorted((ROOT / "contracts").glob("*.yaml"))

ID = re.compile(r"(F|FT|H|KANI)-[A-Z0-9]+(-[A-Z0-9]+)*-\d{3}")
"""F for a falsifier, H for a harness, then the claim and a number; FT and KANI are ids of the sources."""

FROM_THE_SOURCES = {
    "F-DISTILL-CUDA-STUDENT-001",
    "F-DISTILL-KDSTEP-001",
    "F-DISTILL-KDSTEP-002",
    "F-DISTILL-KDSTEP-003",
    "F-DISTILL-STUDENT-001",
    "F-DISTILL-STUDENT-002",
}


def own_claims(contract: pv.Contract) -> list[Falsifier]:
    """Return the claims of a contract without the claims of its suite."""
    return [claim for claim in contract.claims if not claim.id.startswith(f"{contract.id}.")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_short_and_has_short_lines(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert len(lines) <= 500
    assert [f"{file.name}:{i}" for i, line in enumerate(lines, 1) if len(line) > 120] == []


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.id)
def test_file_and_folder_of_falsifiers_are_named_by_the_contract(contract: pv.Contract) -> None:
    assert contract.location.path.stem == contract.id
    folders = {Path(claim.test.file).parent.as_posix() for claim in own_claims(contract) if claim.test is not None}
    assert folders <= {f"falsifiers/{contract.id.replace('-', '_')}"}


def test_ids_follow_one_scheme_and_an_obligation_belongs_to_one_contract() -> None:
    assert [claim.id for contract in CONTRACTS for claim in own_claims(contract) if not ID.fullmatch(claim.id)] == []
    ids = [obligation.id for contract in CONTRACTS for obligation in contract.obligations]
    assert len(ids) == len(set(ids))


def families(contract: pv.Contract) -> set[tuple[str, ...]]:
    """Return the first two words of each id, without kind and number; ids of the sources are left out."""
    claims = {claim.id for claim in own_claims(contract)} - FROM_THE_SOURCES
    of_claims = {tuple(claim.split("-")[1:-1][:2]) for claim in claims}
    return of_claims | {tuple(obligation.id.split("-")[:2]) for obligation in contract.obligations}


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.id)
def test_an_id_tells_its_contract(contract: pv.Contract) -> None:
    others = {words for other in CONTRACTS if other is not contract for words in families(other)}
    first_words = {words[0] for words in others}
    for words in families(contract):
        named = words[0].lower() in contract.id.split("-") and words not in others
        assert named or words[0] not in first_words, f"ids of another contract begin with {'-'.join(words)} too"
