"""What `pv mutate` makes of packages, of slow mutants and of sets, and what it asks of a wider scope."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.mutation import judge, summary
from pv.mutation.judge import MutantStatus
from pv.mutation.result import MutationResult

Project = Callable[[str], Path]


def append(folder: Path, text: str) -> None:
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text() + text)


def one(*names: str, **options: Any) -> MutationResult:
    (result,) = pv.mutate(names or ["shop"], jobs=2, **options)
    return result


def fates(result: MutationResult) -> dict[str, MutantStatus]:
    return {judged.mutant.mutant.id: judged.status for judged in result.judged}


def test_an_equivalent_may_lie_in_a_package(project: Project) -> None:
    folder = project("mutable")
    (folder / "shop").mkdir()
    (folder / "shop.py").rename(folder / "shop/__init__.py")
    (folder / "shop/till.py").write_text("def ring():\n    return 1\n")
    accepted = '{function: "shop:price", find: pieces > 10, replace: pieces >= 10, reason: no member buys here}'
    append(folder, f"equivalents:\n- {accepted}\n")
    assert fates(one())["shop:price: pieces > 10 -> pieces >= 10"] is MutantStatus.EQUIVALENT


def test_who_was_asked_twice_is_named_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "LEAST_LIMIT_S", 2.0)
    folder = project("mutable")
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("falsify_price", "falsify_countdown"))
    endless = [judged for judged in one().judged if judged.status is MutantStatus.TIMEOUT]
    assert endless and all(judged.tried == ("S-PRICE",) for judged in endless)


def test_a_gate_asks_nothing_of_a_wider_scope_than_the_contracts(project: Project) -> None:
    folder = project("mutable")
    append(folder, "mutation_scope: [helper]\nqa_gate: {id: G, name: all, require: {mutation_score: 0.5}}\n")
    assert summary.problems(one()) == []
    assert summary.problems(one(widely=True)) == []


def test_an_equivalent_of_one_module_is_none_of_its_copy(project: Project) -> None:
    folder = project("mutable")
    (folder / "copied.py").write_text((folder / "shop.py").read_text())
    (folder / "helper.py").write_text("import copied\n\n\ndef rounded(cents):\n    return cents\n")
    test = folder / "falsifiers/falsify_shop.py"
    test.write_text(
        test.read_text()
        + "\n\ndef falsify_both(subject):\n"
        + "    import copied\n\n"
        + "    assert (subject.price(2, 10), copied.price(2, 10, True)) == (20, 20)\n"
    )
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("falsify_price", "falsify_both"))
    append(folder, "mutation_scope: [shop, copied]\n")
    accepted = '{function: "shop:price", find: pieces > 10, replace: pieces >= 10, reason: no member buys here}'
    append(folder, f"equivalents:\n- {accepted}\n")
    found = fates(one())
    assert found["shop:price: pieces > 10 -> pieces >= 10"] is MutantStatus.EQUIVALENT
    assert found["copied:price: pieces > 10 -> pieces >= 10"] is MutantStatus.KILLED


def test_a_name_that_is_not_there_is_no_fault_in_a_run_either(project: Project) -> None:
    folder = project("mutable")
    shop = folder / "shop.py"
    lost = "def size(n):\n    if n > 10:\n        word = 'many'\n    else:\n        word = 'few'\n    return word\n"
    shop.write_text(f"{shop.read_text()}\n\n{lost}")
    test = folder / "falsifiers/falsify_shop.py"
    test.write_text(
        test.read_text()
        + "\n\ndef ask(subject, *, device, directory, trace):\n    return subject.size(3)\n"
        + "\n\ndef falsify_size(run):\n    assert run.result == 'few'\n"
    )
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("falsify_price", "falsify_size"))
    append(folder, "  run: R\nruns: [{name: R, callable: falsifiers/falsify_shop.py::ask, arguments: {}, small: {}}]\n")
    (unnamed,) = (j for j in one().judged if j.mutant.mutant.id == "shop:size: word = 'few' -> pass")
    assert (unnamed.status, unnamed.seen.partition(": ")[0]) == (MutantStatus.INVALID, "UnboundLocalError")
