"""Every function of the trainer is mutated for exactly one contract."""

from collections import Counter
from pathlib import Path

import pv
from pv.source import resolve, syntax

ROOT = Path(__file__).parents[2]


def functions() -> list[str]:
    files = sorted((ROOT / "reference_trainer").rglob("*.py"))
    return [f"{module(f)}:{name}" for f in files for name, _ in syntax.functions(resolve.parse(f))]


def module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_every_function_is_mutated_for_exactly_one_contract() -> None:
    contracts = pv.load([ROOT / "contracts"]).contracts
    own = {c.id: [str(c.subject)] for c in contracts if not c.mutation_scope.modules}
    assert own == {"kd-loss": ["reference_trainer.distillation.losses"]}
    held = Counter[str](dict.fromkeys(functions(), 0))
    for contract in contracts:
        held.update(f for f in held if contract.mutation_scope.holds(f))
        held.update(f for f in held if f.partition(":")[0] in own.get(contract.id, []))
    assert [f for f, count in held.items() if count > 1] == [], "scored in two contracts"
    assert [f for f, count in held.items() if count == 0] == [], "scored in no contract"
