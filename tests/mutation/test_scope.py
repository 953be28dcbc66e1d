"""What is mutated: what a contract names, what is asked for, and nothing that is not under contract."""

import json
import re
from typing import Any

import pytest

from pv.errors import UsageError
from pv.mutation import summary


def test_a_contract_selects_the_modules_that_are_mutated(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    assert {j.mutant.function for j in shop.mutate("shop").judged} == {"shop:price", "shop:leave"}
    shop.append("mutation_scope: [helper]\n")
    found = shop.mutate("shop")
    assert {j.mutant.function for j in found.judged} == {"helper:rounded"}
    assert json.loads(summary.data([found], 0.5))["contracts"][0]["mutation_scope"] == ["helper"]


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (
            "shop:price",
            "invalid value 'shop:price' for 'mutation_scope': expected a module or package; write shop",
        ),
        ("falsifiers.falsify_shop", "no subject of this contract or its judges imports falsifiers.falsify_shop"),
    ],
)
def test_only_code_under_contract_can_be_named(shop: Any, named: str, says: str) -> None:
    shop.append(f'mutation_scope: ["{named}"]\n')
    with pytest.raises(UsageError, match=f"PV138 {re.escape(says)}"):
        shop.mutate("shop")


def test_a_module_that_no_falsifier_executes_is_no_part_of_a_recorded_score(shop: Any) -> None:
    (shop.folder / "shop.py").write_text("import idle\n" + (shop.folder / "shop.py").read_text())
    (shop.folder / "idle.py").write_text("def never_called():\n    return 1 + 1\n")
    shop.append("mutation_scope: [shop, helper, idle]\n")
    problem = "no falsifier executes idle"
    assert summary.problems(shop.mutate("shop", record=True)) == [f"no score was recorded: {problem}"]
    assert not (shop.folder / "evidence").exists()


def test_only_the_modules_that_are_asked_for_are_mutated(shop: Any) -> None:
    assert {j.mutant.function for j in shop.mutate("shop", widely=True, modules=["help*"]).judged} == {"helper:rounded"}
    assert shop.mutate("shop", modules=["helper"]).judged == (), "it is no subject"
    assert summary.exit_code([shop.mutate("shop", modules=["helper"])]) == 2
