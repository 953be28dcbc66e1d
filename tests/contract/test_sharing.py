"""Domains, constants, equations and suites that several equations or contracts share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract import sharing
from pv.contract.load import load, load_file
from pv.contract.model import Contract, NotClaimed, OtherSubject, Run, Target
from pv.contract.suites import adapter_suites, is_suite, join_suite, suites
from pv.report.listing import render_formulas
from tests.results.handmade import HERE, contract, falsifier
from tests.support.projects import HEAD

BASE = Path(__file__).with_name("shared.yaml").read_text()


def loaded(folder: Path, **contracts: str) -> dict[str, Contract]:
    for id_, text in contracts.items():
        (folder / f"{id_}.yaml").write_text(f"{HEAD}falsifiers: []\n{text}".replace("id: c", f"id: {id_}", 1))
    loaded_files = load([folder])
    assert loaded_files.findings == ()
    return {contract.id: contract for contract in loaded_files.contracts}


def test_references_are_replaced_by_domains_and_constants(tmp_path: Path) -> None:
    keys = sharing.executable_equations(loaded(tmp_path, base=BASE)["base"])
    assert keys["scaled"]["domain"] == {"x": "logits[V]", "tau": "real 0.5..8"}
    assert keys["scaled"]["expression"] == "part = weight(tau)\nsum(x) / part - (-100)  \n"
    assert keys["scaled"]["tolerance"]["why"] == "costs $5"


def test_used_equation_brings_those_that_it_calls(tmp_path: Path) -> None:
    user = "use: [base.scaled]\nequations: {own: {domain: {x: real}, expression: x}}\n"
    contracts = loaded(tmp_path, base=BASE, user=user)
    equations = sharing.executable_equations(contracts["user"])
    assert list(equations) == ["own", "scaled", "weight", "unit"]
    assert render_formulas([contracts["user"]], "latex").count("=") == 1, "the contract's own equation"
    assert equations["scaled"] == sharing.executable_equations(contracts["base"])["scaled"]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("domain: {x: $most}, expression: x", []),
        ("domain: {x: $mots}, expression: x", [("e", "domain/x", "mots", (1, 1))]),
        ("domain: {x: real}, expression: x + $ignore", [("e", "expression", "ignore", (1, 5))]),
        ('domain: {x: real}, expression: "y = x\\ny + $no"', [("e", "expression", "no", (2, 5))]),
        ("domain: {x: real}, expression: x, invariants: [x > $low]", [("e", "invariants/0", "low", (1, 5))]),
    ],
)
def test_unknown_references_are_reported_with_their_position(tmp_path: Path, text: str, unknown: Any) -> None:
    contract = loaded(tmp_path, base=f"constants: {{most: 8}}\nequations: {{e: {{{text}}}}}\n")["base"]
    assert list(sharing.unknown_references(contract)) == unknown


@pytest.mark.parametrize("name", sorted(adapter_suites()))
def test_every_claim_of_a_suite_names_a_fault_that_it_detects(name: str) -> None:
    suite, findings = load_file(suites()[name])
    assert suite is not None and findings == [] and is_suite(suite)
    assert suite.id == name
    # The suite's own loop is of one process: faults of ranks are planted in tests/suites/training_loop/claims.
    mine = (claim for claim in suite.falsifiers if "ranks" not in claim.options["needs"])
    assert [claim.id for claim in mine if not claim.kills] == []


def test_mutant_of_a_contract_is_killed_by_the_claims_of_its_suite_that_it_names() -> None:
    suite, _ = load_file(suites()["training-loop"])
    assert suite is not None
    fault = replace(suite.mutants[0], id="fault", killed_by=(suite.falsifiers[1].id,))
    joined = join_suite(replace(suite, id="mine", falsifiers=(), mutants=(fault,)), suite)
    assert [claim.kills for claim in joined.falsifiers][:3] == [(), ("fault",), ()]
    premises = {id_ for claim in joined.falsifiers for id_ in claim.options["premises"]}
    assert premises and premises <= {claim.id for claim in joined.falsifiers}


def test_subjects_that_claim_as_each_other_end_the_search() -> None:
    pair = [OtherSubject(name=a, target=Target(a), location=HERE, claims_as=b) for a, b in ("xy", "yx")]
    assert contract(subjects=tuple(pair)).not_claimed(Target("x")) == {}


def test_a_subject_that_claims_as_another_one_leaves_out_its_claims_too() -> None:
    left_out = {name: (NotClaimed(falsifiers=(f"F-{name}",), why="w", reference="r", places=()),) for name in "xy"}
    x = OtherSubject(name="x", target=Target("x"), location=HERE, not_claimed=left_out["x"])
    y = OtherSubject(name="y", target=Target("y"), location=HERE, not_claimed=left_out["y"], claims_as="x")
    assert contract(subjects=(x, y)).not_claimed(Target("y")) == {"F-x": "w (r)", "F-y": "w (r)"}


def test_the_subject_of_a_claim_is_its_own_or_that_of_its_run_or_of_the_contract() -> None:
    runs = tuple(
        Run(name=name, location=HERE, subject=subject) for name, subject in (("r", Target("run")), ("s", None))
    )
    example = contract(subject=Target("whole"), runs=runs)
    target = Target("own")
    cases = {"own": {"subject": target, "run": "r"}, "run": {"run": "r"}, "whole": {"run": "s"}}
    assert [str(example.subject_of(falsifier(**fields))) for fields in cases.values()] == [*cases]
    assert [str(example.subject_of(run)) for run in runs] == ["run", "whole"]
    with pytest.raises(LookupError, match="no subject"):
        contract().subject_of(falsifier())
    assert not is_suite(example)
