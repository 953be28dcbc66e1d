"""What is mutated and who judges it: what a contract names, what is asked for, and nothing beyond."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pv
from pv.contract.model import Target
from pv.errors import UsageError
from pv.mutation import scope, summary
from pv.results.verdict import Report
from pv.source.project import find_project
from tests.commands.small import edit
from tests.results.handmade import contract, falsifier
from tests.support.projects import HEAD, write


def test_a_contract_selects_the_modules_that_are_mutated(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    assert {j.mutant.function for j in shop.mutate("shop").judged} == {"shop:price", "shop:leave"}
    shop.append("mutation_scope: [helper]\n")
    result = shop.mutate("shop")
    assert {j.mutant.function for j in result.judged} == {"helper:rounded"}
    assert json.loads(summary.data([result], 0.5))["contracts"][0]["mutation_scope"] == ["helper"]


def test_a_module_that_no_falsifier_executes_is_no_part_of_a_recorded_score(shop: Any) -> None:
    (shop.folder / "shop.py").write_text("import idle\n" + (shop.folder / "shop.py").read_text())
    (shop.folder / "idle.py").write_text("def never_called():\n    return 1 + 1\n")
    shop.append("mutation_scope: [shop, helper, idle]\n")
    problem = "no falsifier executes idle"
    assert summary.problems(shop.mutate("shop", record=True)) == [f"no score was recorded: {problem}"]
    assert not (shop.folder / "evidence").exists()
    assert summary.problems(shop.mutate("shop", modules=["shop"], sample=1)) == [], "the selection leaves idle out"


def test_a_package_includes_the_modules_of_its_packages(empty: Path) -> None:
    names = ("pack/__init__.py", "pack/one.py", "pack/inner/__init__.py", "pack/inner/two.py")
    write(empty, {"pyproject.toml": '[tool.pv]\nroots = ["."]\n', **dict.fromkeys(names, "")})
    project = find_project(empty)
    included = [module.name for module in scope.modules(project, [Target("pack")])]
    assert sorted(included) == ["pack", "pack.inner", "pack.inner.two", "pack.one"]
    assert [module.name for module in scope.modules(project, [Target("pack.__init__")])] == ["pack"]


def test_a_claim_about_an_observed_command_judges_no_mutants() -> None:
    judging = contract(falsifier("F"), falsifier("O", options={"observed": "python train.py"}))
    assert [claim.id for claim in scope.judging_claims(judging)] == ["F"]


def test_only_the_modules_that_are_asked_for_are_mutated(shop: Any) -> None:
    assert shop.mutate("shop", modules=["helper"]).judged == (), "it is no subject"
    assert summary.exit_code([shop.mutate("shop", modules=["helper"])]) == 2
    shop.append("mutation_scope: [shop]\n")
    result = shop.mutate("shop", widely=True, modules=["other", "help*"])
    assert {j.mutant.function for j in result.judged} == {"helper:rounded"}, "--wide ignores the scope"


def validated(*paths: str) -> tuple[Report, dict[str, Any]]:
    report = pv.validate(paths, mutants=False)
    shown = json.loads(pv.render(report, "json"))
    Draft202012Validator(pv.schema("report")).validate(shown)
    return report, shown["contracts"][0]


def test_a_score_stays_one_of_its_own_places_when_the_contract_names_others(shop: Any) -> None:
    shop.scope("[helper, shop]")
    shop.mutate("shop", record=True)
    shop.scope("[helper]")
    report, shown = validated()
    assert shown["mutation_scope"] == ["helper"]
    assert shown["mutation_score"]["mutation_scope"] == ["helper", "shop"]
    assert shown["mutation_score"]["changed"][0] == "the contract's `mutation_scope`"
    assert ", of 2 modules; recorded " in pv.render(report, verbose=True)
    assert ", stale, changed: the contract's `mutation_scope`" in pv.render(report, verbose=True)


@pytest.mark.parametrize(
    ("places", "options", "says"),
    [
        ("[shop]", {"modules": ["helper"]}, "helper is not in the `mutation_scope` of shop (shop); --wide ignores the"),
        ("", {"modules": ["helper", "h*"]}, "helper or h* is not a subject of shop (choose from shop); --wide adds"),
        ("[helper]", {"modules": ["shoe"], "widely": True}, "no subject of shop imports shoe (choose from helper,"),
    ],
)
def test_module_that_is_not_mutated_is_named_with_those_that_are(
    shop: Any, places: str, options: dict[str, Any], says: str
) -> None:
    if places:
        shop.scope(places)
    raising = "def falsify_price(subject):\n    raise Exception('it was run')\n"
    (shop.folder / "falsifiers/falsify_shop.py").write_text(raising)
    result = shop.mutate("shop", **options)
    assert summary.text([result], 0.5).startswith(f"shop by S-PRICE: nothing to judge: {says}")
    assert (summary.problems(result), summary.exit_code([result])) == ([], 2)


def test_a_fault_declared_in_another_module_is_another_scope(shop: Any) -> None:
    shop.mutate("shop", record=True)
    fault = '{id: lost, fault: nothing, edit: {function: "helper:rounded", find: cents + 0, replace: cents + 1}}'
    shop.append(f"  kills: [lost]\nmutants:\n- {fault}\n")
    assert {judged.mutant.function for judged in shop.mutate("shop").judged} == {"shop:price", "helper:rounded"}
    _, shown = validated()
    assert shown["mutation_score"]["changed"] == ["the contract's clause"]


def judge(shop: Any, subject: str = "shop") -> None:
    """Write a contract that judges the mutants of the shop."""
    head = HEAD.replace("id: c", "id: leave")
    text = f"{head}subject: {subject}\nfalsifiers:\n{shop.claim('L-LEAVE', 'falsify_leave')}"
    (shop.folder / "contracts/leave.yaml").write_text(text)


@pytest.fixture
def judged(shop: Any) -> Any:
    shop.append("mutation_scope: {modules: [shop], judges: [leave]}\n")
    judge(shop)
    return shop


def test_falsifiers_of_judges_kill_mutants_too_and_the_score_is_stale_after_a_change_of_one(judged: Any) -> None:
    for names, options in (["S-PRICE"], {}), (["shop"], {"modules": ["shop"]}), (["shop"], {"widely": True}):
        with pytest.raises(UsageError, match="--record needs all falsifiers and the declared scope: omit --record"):
            judged.mutate(*names, record=True, **options)
    result = judged.mutate("shop", record=True)
    assert {j.mutant.function for j in result.judged} == {"shop:price", "shop:leave"}
    assert {j.tried[-1] for j in result.judged if j.tried and j.mutant.function == "shop:leave"} == {"L-LEAVE"}
    kept = json.loads((judged.folder / "evidence/shop.mutants.json").read_text())
    Draft202012Validator(pv.schema("mutants")).validate(kept)
    assert (kept["mutation_scope"], kept["judges"]) == (["shop"], ["leave"])
    _, shown = validated("contracts/shop.yaml")
    assert (shown["judges"], shown["mutation_score"]["changed"]) == (["leave"], [])
    edit(judged.folder / "contracts/leave.yaml", "prediction: as the test says", "prediction: the same")
    assert validated("contracts/shop.yaml")[1]["mutation_score"]["changed"] == ["the contract's clause"]


def test_judge_without_scope_has_no_score_of_its_own(judged: Any) -> None:
    result = judged.mutate("leave")
    says = "leave by 0 falsifiers: nothing to judge: leave has no score of its own; its modules are scored in shop"
    assert summary.text([result], 0.5).startswith(says)
    assert (summary.problems(result), summary.exit_code([result])) == ([], 2)
    assert [result.contract.id for result in pv.mutate(jobs=1)] == ["shop"], "it is left out if no contract is named"


def test_contract_has_a_score_of_the_modules_that_no_other_scope_holds(shop: Any) -> None:
    shop.scope("[helper]")
    judge(shop)
    (shop.folder / "falsifiers/falsify_helper.py").write_text(
        "def falsify(subject):\n    assert subject.rounded(3) == 3\n"
    )
    helped = shop.claim("L-HELPER", "falsify").replace("falsify_shop.py", "falsify_helper.py")
    with (shop.folder / "contracts/leave.yaml").open("a") as contract:
        contract.write(f"{helped}  subject: helper\n")
    assert {judged.mutant.function for judged in shop.mutate("leave").judged} == {"shop:leave"}


def test_falsifier_of_a_judge_is_tried_on_the_scope_that_it_judges(judged: Any) -> None:
    leave = judged.folder / "contracts/leave.yaml"
    text = leave.read_text()
    leave.write_text(f"{text}equivalents: [{{function: 'shop:leave', find: stale, replace: status, reason: none}}]\n")
    result = judged.mutate("L-LEAVE")
    assert (result.contract.id, result.falsifiers, result.restricted) == ("shop", ("L-LEAVE",), True)
    leave.write_text(f"{text}mutation_scope: [helper]\n")
    assert judged.mutate("L-LEAVE").contract.id == "leave", "now it has a score of its own"


@pytest.mark.parametrize(
    ("scope", "subject", "says"),
    [
        ("[falsifiers.falsify_shop]", "shop", "PV138 no subject of .* or its judges imports falsifiers.falsify_shop"),
        ("{modules: [shop], judges: [leav]}", "shop", "PV138 unknown contract 'leav' in 'judges'; .*'leave'"),
        ("{modules: [shop], judges: [leave]}", "shoe", "leave cannot be run"),
    ],
)
def test_code_that_is_not_under_contract_and_unusable_judges_are_refused(
    shop: Any, scope: str, subject: str, says: str
) -> None:
    shop.append(f"mutation_scope: {scope}\n")
    judge(shop, subject)
    with pytest.raises(UsageError, match=says):
        shop.mutate("shop")
