"""Mutants that a contract accepts as equivalent, and those of packages and runs."""

from typing import Any

import pytest

from pv.errors import UsageError
from pv.mutation import summary
from pv.mutation.judge import MutantStatus


def test_too_many_equivalents_fail_a_run_of_all_and_say_what_to_try(shop: Any) -> None:
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    more = '{function: "shop:price", find: pieces > 10, replace: pieces > 11, reason: no member buys here}'
    shop.append(f"- {more}\n")
    assert summary.problems(shop.mutate("shop")) == [
        "2 mutants declared equivalent, at most 1 allowed (`equivalents` of the gate: 5 % of all mutants): "
        "write a falsifier that tells them apart, or simpler code"
    ]
    drawn = shop.mutate("shop", sample=14)
    assert (drawn.count(MutantStatus.EQUIVALENT), summary.problems(drawn)) == (2, [])
    part = shop.mutate("shop", modules=["shop"])
    assert (part.count(MutantStatus.EQUIVALENT), summary.problems(part)) == (2, [])


@pytest.mark.parametrize(
    ("replace", "says"),
    [
        ("whole <= 0", "declared equivalent, but S-PRICE kills it: shop:price: whole < 0 -> whole <= 0"),
        ("whole < -5", "declared equivalent matches no generated mutant: contracts/shop.yaml:11:3: whole < 0 -> whole"),
    ],
)
def test_a_result_with_problems_is_not_recorded(shop: Any, replace: str, says: str) -> None:
    shop.accept(find="whole < 0", replace=replace, reason="nothing is free")
    result = shop.mutate("shop", record=True)
    (problem,) = summary.problems(result)
    assert problem.startswith(f"no score was recorded: {says}")
    assert summary.exit_code([result]) == 1
    assert f"error: {problem}" in summary.text([result], 0.5)
    assert not (shop.folder / "evidence").exists()


def test_a_part_of_a_contract_says_nothing_of_equivalents_and_gates_of_the_whole(shop: Any) -> None:
    shop.add("S-LEAVE", "falsify_leave")
    shop.gate(1.0)
    shop.accept(find="whole < 0", replace="whole < -5", reason="it is")
    assert summary.problems(shop.mutate("S-LEAVE")) == []
    assert summary.problems(shop.mutate("shop", modules=["help*"])) == []
    says = "declared equivalent matches no generated mutant: contracts/shop.yaml:"
    assert says in summary.problems(shop.mutate("shop"))[0]


def test_an_equivalent_outside_of_what_is_mutated_is_refused(shop: Any) -> None:
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    shop.append("mutation_scope: [helper]\n")
    with pytest.raises(UsageError, match="PV137 shop:price is not in `mutation_scope`: remove the equivalent"):
        shop.mutate("shop")


def test_an_equivalent_may_lie_in_a_package(shop: Any) -> None:
    (shop.folder / "shop").mkdir()
    (shop.folder / "shop.py").rename(shop.folder / "shop/__init__.py")
    (shop.folder / "shop/till.py").write_text("def ring():\n    return 1\n")
    shop.accept(find="pieces > 10", replace="pieces >= 10", reason="no member buys here")
    assert shop.fates(shop.mutate("shop"))["price: pieces > 10 -> pieces >= 10"] is MutantStatus.EQUIVALENT


def test_a_name_that_is_not_there_is_no_fault_in_a_run_either(shop: Any) -> None:
    source = shop.folder / "shop.py"
    lost = "def size(n):\n    if n > 10:\n        word = 'many'\n    else:\n        word = 'few'\n    return word\n"
    source.write_text(f"{source.read_text()}\n\n{lost}")
    test = shop.folder / "falsifiers/falsify_shop.py"
    asking = "def ask(subject, *, device, directory, trace):\n    return subject.size(3)\n"
    test.write_text(f"{asking}\ndef falsify_size(run):\n    assert run.result == 'few'\n")
    contract = shop.folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("falsify_price", "falsify_size"))
    shop.append("  run: R\nruns: [{name: R, callable: falsifiers/falsify_shop.py::ask, arguments: {}, small: {}}]\n")
    (unnamed,) = (j for j in shop.mutate("shop").judged if j.mutant.mutant.id == "shop:size: word = 'few' -> pass")
    assert (unnamed.status, unnamed.seen.partition(": ")[0]) == (MutantStatus.INVALID, "UnboundLocalError")
