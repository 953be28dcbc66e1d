"""Other contracts that judge the mutants of a contract, and the contracts without a score of their own."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pv
from pv.errors import UsageError
from pv.mutation import summary

JUDGE = """schema: pv/1
metadata: {{id: {id}, version: 1.0.0, description: Leaving, references: [the shop]}}
subject: {subject}
obligations: [{{id: OL, statement: leaving keeps the status}}]
falsifiers:
- id: {claim}
  obligation: OL
  rule: leaving returns the status
  prediction: equal
  if_fails: another status
  test: falsifiers/falsify_shop.py::falsify_leave
"""


def judge(shop: Any, id_: str = "leave", claim: str = "L-LEAVE", subject: str = "shop", more: str = "") -> None:
    text = JUDGE.format(id=id_, claim=claim, subject=subject) + more
    (shop.folder / f"contracts/{id_}.yaml").write_text(text)


@pytest.fixture
def judged(shop: Any) -> Any:
    shop.append("mutation_scope: {modules: [shop], judges: [leave]}\n")
    judge(shop)
    return shop


def test_falsifiers_of_judges_kill_mutants_too(judged: Any) -> None:
    result = judged.mutate("shop", record=True)
    assert {j.mutant.function for j in result.judged} == {"shop:price", "shop:leave"}
    assert {j.tried[-1] for j in result.judged if j.tried and j.mutant.function == "shop:leave"} == {"L-LEAVE"}
    kept = json.loads((judged.folder / "evidence/shop.mutants.json").read_text())
    Draft202012Validator(pv.schema("mutants")).validate(kept)
    assert (kept["mutation_scope"], kept["judges"]) == (["shop"], ["leave"])


def test_score_is_stale_after_a_change_of_a_judge(judged: Any) -> None:
    judged.mutate("shop", record=True)
    said = pv.validate(["contracts/shop.yaml"], mutants=False)
    shown = json.loads(pv.render(said, "json"))
    Draft202012Validator(pv.schema("report")).validate(shown)
    assert shown["contracts"][0]["judges"] == ["leave"]
    assert shown["contracts"][0]["mutation_score"]["changed"] == []
    file = judged.folder / "contracts/leave.yaml"
    file.write_text(file.read_text().replace("prediction: equal", "prediction: the same"))
    shown = json.loads(pv.render(pv.validate(mutants=False), "json"))["contracts"]
    assert next(c for c in shown if c["id"] == "shop")["mutation_score"]["changed"] == ["the contract's clause"]


def test_judge_without_scope_has_no_score_of_its_own(judged: Any) -> None:
    result = judged.mutate("leave")
    says = "leave by 0 falsifiers: nothing to judge: leave has no score of its own; its modules are scored in shop"
    assert summary.text([result], 0.5).startswith(says)
    assert (summary.problems(result), summary.exit_code([result])) == ([], 2)
    assert [each.contract.id for each in pv.mutate(jobs=1)] == ["shop"], "it is left out if no contract is named"


def test_falsifier_of_a_judge_is_tried_on_the_scope_that_it_judges(judged: Any) -> None:
    result = judged.mutate("L-LEAVE")
    assert (result.contract.id, result.falsifiers, result.restricted) == ("shop", ("L-LEAVE",), True)


def test_unknown_judge_is_a_lint_error(shop: Any) -> None:
    shop.append("mutation_scope: {modules: [shop], judges: [leav]}\n")
    judge(shop)
    with pytest.raises(UsageError, match="PV138 unknown contract 'leav' in 'judges'; did you mean 'leave'"):
        shop.mutate("shop")


def test_judge_that_lint_refuses_judges_nothing(judged: Any) -> None:
    judge(judged, subject="shoe")
    with pytest.raises(UsageError, match="leave cannot be run"):
        judged.mutate("shop")
