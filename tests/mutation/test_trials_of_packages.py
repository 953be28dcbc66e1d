"""What `pv mutate` makes of packages, of slow mutants and of sets, and what it asks of a wider scope."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pv
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
