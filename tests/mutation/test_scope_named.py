"""The `mutation_scope` of a contract, in its score, its evidence and its reports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pv
from pv.mutation import summary
from pv.mutation.result import MutationResult
from pv.results.verdict import Report

Project = Callable[[str], Path]


def named(folder: Path, places: str) -> None:
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().partition("mutation_scope:")[0] + f"mutation_scope: {places}\n")


def one(**options: Any) -> MutationResult:
    (result,) = pv.mutate(["shop"], jobs=2, **options)
    return result


def validated() -> tuple[Report, dict[str, Any]]:
    said = pv.validate(mutants=False)
    shown = json.loads(pv.render(said, "json"))
    Draft202012Validator(pv.schema("report")).validate(shown)
    return said, shown["contracts"][0]


def test_a_score_stays_one_of_its_own_places_when_the_contract_names_others(project: Project) -> None:
    folder = project("mutable")
    named(folder, "[helper, shop]")
    one(record=True)
    named(folder, "[helper]")
    said, shown = validated()
    assert shown["mutation_scope"] == ["helper"]
    assert shown["mutation_score"]["mutation_scope"] == ["helper", "shop"]
    assert shown["mutation_score"]["changed"][0] == "the contract's `mutation_scope`"
    assert ", of 2 modules; recorded " in pv.render(said, verbose=True)
    assert ", stale, changed: the contract's `mutation_scope`" in pv.render(said, verbose=True)


@pytest.mark.parametrize(
    ("places", "options", "says"),
    [
        (
            "[shop]",
            {"modules": ["helper"]},
            "helper is not in the `mutation_scope` of shop (shop); --wide ignores the scope",
        ),
        (
            "",
            {"modules": ["helper", "h*"]},
            "helper or h* is not a subject of shop (choose from shop); --wide adds what they",
        ),
        (
            "[helper]",
            {"modules": ["shoe"], "widely": True},
            "no subject of shop imports shoe (choose from helper, shop)",
        ),
    ],
)
def test_a_module_that_is_not_mutated_is_answered_with_what_is(
    project: Project, places: str, options: dict[str, Any], says: str
) -> None:
    folder = project("mutable")
    if places:
        named(folder, places)
    (folder / "falsifiers/falsify_shop.py").write_text(
        "def falsify_price(subject):\n    raise Exception('it was run')\n"
    )
    result = one(**options)
    assert summary.text([result], 0.5).startswith(f"shop by S-PRICE: nothing to judge: {says}")
    assert (summary.problems(result), summary.exit_code([result])) == ([], 2)


def test_a_fault_declared_in_another_module_is_another_scope(project: Project) -> None:
    folder = project("mutable")
    one(record=True)
    fault = '{id: lost, fault: nothing, edit: {function: "helper:rounded", find: cents + 0, replace: cents + 1}}'
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text() + f"  kills: [lost]\nmutants:\n- {fault}\n")
    assert {judged.mutant.function for judged in one().judged} == {"shop:price", "helper:rounded"}
    _, shown = validated()
    assert shown["mutation_score"]["changed"] == ["the contract's clause"]
