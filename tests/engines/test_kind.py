"""Every claim has one kind, and a kind's payload survives its way to a worker."""

import json
from pathlib import Path
from typing import Any

import cattrs
import pytest

from pv.contract.check import schema
from pv.contract.claims import Falsifier
from pv.contract.load import load
from pv.contract.names import Target
from pv.engines.code import Code
from pv.engines.kind import How, seed_of
from pv.engines.kinds import KINDS, kind_of
from pv.engines.trial import EquationMutants, Trial, TrialStatus
from pv.source.project import find_project
from tests.engines.kinds.claims import BASE, CLAIMS, CONTRACT, TEST


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_has_the_kind_of_its_keys(name: str) -> None:
    assert kind_of(CLAIMS[name]).name == name


def test_registry_has_an_example_of_every_kind_here() -> None:
    assert set(KINDS) == set(CLAIMS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_section_of_a_kind_is_a_key_of_the_schema(kind: Any) -> None:
    assert kind.section in schema("contract")["properties"]


def test_payload_of_a_contract_survives_json() -> None:
    folder = Path(__file__).parents[1] / "bad_contracts"
    code = Code(find_project(folder / "project"), Target("tiny"))
    (contract,) = load([folder / "good.yaml"]).contracts
    for claim in contract.claims:
        kind = kind_of(claim)
        payload = kind.payload(code, contract, claim, How(seed=3, directory="d"))
        sent = json.loads(json.dumps(cattrs.unstructure(payload)))
        assert cattrs.structure(sent, kind.payload_type) == payload
        assert payload.seed == seed_of(claim.id, 3) != seed_of(claim.id, 4)


@pytest.mark.parametrize(
    ("name", "how", "limit_s"),
    [
        ("property", How(), 60.0),
        ("equation", How(), 60.0),
        ("run", How(directory="d"), 60.0),
        ("run", How(directory="d", execute={}), 120.0),
        ("harness", How(), 1.25 * 8 + 5),  # both engines, each with its own limit
    ],
)
def test_worker_is_killed_after(name: str, how: How, limit_s: float) -> None:
    assert kind_of(CLAIMS[name]).limit_s(CONTRACT, CLAIMS[name], how) == limit_s


def test_parameters_are_what_the_worker_passes() -> None:
    device = Falsifier(test=TEST, devices=("cpu", "cuda"), **BASE)
    claims = [CLAIMS["property"], device, CLAIMS["run"], CLAIMS["harness"]]
    found = [kind_of(claim).parameters(claim) for claim in claims]
    assert found == [("subject",), ("subject", "device"), ("run",), ("subject", "n")]


def test_only_proofs_are_confirmed_and_undetected_by_a_timeout() -> None:
    proving = {name for name, kind in KINDS.items() if kind.proves}
    assert proving == {"harness", "prose harness"}
    assert {name for name, kind in KINDS.items() if kind.confirms or not kind.timeout_kills} == {"harness"}
    assert {name for name, kind in KINDS.items() if not kind.bound} == {"prose", "prose harness"}


def test_effort_names_examples_seed_and_equation_mutants() -> None:
    mutants = EquationMutants(killed=2, total=3)
    held = Trial(
        falsifier="F", device="cpu", status=TrialStatus.HELD, valid=8, asked=10, invalid=1, equation_mutants=mutants
    )
    assert KINDS["property"].effort(held) == "8 valid examples of 10 requested (1 rejected), seed 0, 0.00 s"
    assert "2 of 3 equation mutants killed" in KINDS["equation"].effort(held)
    ended = Trial(falsifier="F", device="cpu", status=TrialStatus.TIMEOUT, seconds=1.5)
    assert (KINDS["property"].effort(ended), KINDS["harness"].effort(ended)) == ("for 1.50 s, seed 0", "for 1.50 s")


def test_keys_that_only_a_kind_reads_are_part_of_its_clause() -> None:
    class Grid(type(KINDS["property"])):
        keys = ("grid",)

    claim = Falsifier(test=TEST, options={"grid": {"n": [1, 2]}, "other": 3}, **BASE)
    assert Grid().clause(claim) == {"grid": {"n": [1, 2]}}
    assert KINDS["property"].clause(claim) == {}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_keys_of_a_kind_are_in_the_schema_of_its_section(kind: Any) -> None:
    section = schema("contract")["properties"][kind.section]
    known = section.get("items", schema("contract")["$defs"].get(kind.section, {}).get("items", {}))["properties"]
    assert set(kind.keys) <= set(known)
