"""What `pv mutate` makes of packages, of slow mutants and of sets, and what it asks of a wider scope."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.mutation import judge, report
from pv.mutation.judge import Fate
from pv.mutation.result import Result

Project = Callable[[str], Path]
DIGEST = "from pv.mutation.generate import compiles_to; print(compiles_to('m', {source!r}))"


def append(folder: Path, text: str) -> None:
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text() + text)


def one(*names: str, **options: Any) -> Result:
    (result,) = pv.mutate(names or ["shop"], jobs=2, **options)
    return result


def fates(result: Result) -> dict[str, Fate]:
    return {judged.mutant.mutant.id: judged.fate for judged in result.judged}


def test_an_equivalent_may_lie_in_a_package(project: Project) -> None:
    folder = project("mutable")
    (folder / "shop").mkdir()
    (folder / "shop.py").rename(folder / "shop/__init__.py")
    (folder / "shop/till.py").write_text("def ring():\n    return 1\n")
    accepted = '{function: "shop:price", find: pieces > 10, replace: pieces >= 10, reason: no member buys here}'
    append(folder, f"equivalents:\n- {accepted}\n")
    assert fates(one())["shop:price: pieces > 10 -> pieces >= 10"] is Fate.EQUIVALENT


def test_what_a_module_compiles_to_is_the_same_in_every_process() -> None:
    source = "def f(x):\n    return x in {'a', 'b', 'c', 'd'} or x in ({'e', 'f'}, 1)\n"
    code = DIGEST.format(source=source)
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "1234"
    }
    assert len(seen) == 1


def test_who_was_asked_twice_is_named_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "LEAST_LIMIT_S", 2.0)
    folder = project("mutable")
    contract = folder / "contracts/shop.yaml"
    contract.write_text(contract.read_text().replace("falsify_price", "falsify_countdown"))
    endless = [judged for judged in one().judged if judged.fate is Fate.BY_LIMIT]
    assert endless and all(judged.tried == ("S-PRICE",) for judged in endless)


def test_a_gate_asks_nothing_of_a_wider_scope_than_the_contracts(project: Project) -> None:
    folder = project("mutable")
    append(folder, "mutated: [helper]\nqa_gate: {id: G, name: all, require: {mutation_score: 0.5}}\n")
    assert report.problems(one()) == []
    assert report.problems(one(widely=True)) == []


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
    append(folder, "mutated: [shop, copied]\n")
    accepted = '{function: "shop:price", find: pieces > 10, replace: pieces >= 10, reason: no member buys here}'
    append(folder, f"equivalents:\n- {accepted}\n")
    found = fates(one())
    assert found["shop:price: pieces > 10 -> pieces >= 10"] is Fate.EQUIVALENT
    assert found["copied:price: pieces > 10 -> pieces >= 10"] is Fate.KILLED


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
    assert (unnamed.fate, unnamed.seen.partition(": ")[0]) == (Fate.VOID, "UnboundLocalError")
