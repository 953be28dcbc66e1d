"""Which contract answers for which function of the trainer."""

from collections import Counter
from pathlib import Path

import pv
from pv import binding, syntax

ROOT = Path(__file__).parents[2]


def functions() -> list[str]:
    files = sorted((ROOT / "reference_trainer").glob("*.py"))
    return [f"reference_trainer.{f.stem}:{name}" for f in files for name, _ in syntax.functions(binding.parse(f))]


def test_each_function_is_mutated_for_one_contract() -> None:
    contracts = pv.load([ROOT / "contracts"]).contracts
    own = {c.id: [str(c.subject)] for c in contracts if not c.mutated}
    assert own == {"kd-loss": ["reference_trainer.losses"]}
    held = Counter[str](dict.fromkeys(functions(), 0))
    for contract in contracts:
        held.update(f for f in held if any(each.holds(f) for each in contract.mutated))
        held.update(f for f in held if f.partition(":")[0] in own.get(contract.id, []))
    assert [f for f, count in held.items() if count > 1] == [], "two contracts answer for these"
    assert [f for f, count in held.items() if count == 0] == [], "no contract answers for these"
