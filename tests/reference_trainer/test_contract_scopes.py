"""Every module of the trainer is mutated for exactly one contract, or is left out for a reason."""

from collections import Counter
from pathlib import Path

import yaml

import pv

ROOT = Path(__file__).parents[2]

OUT = yaml.safe_load(Path(__file__).with_name("unscoped.yaml").read_text())


def modules() -> list[str]:
    files = sorted((ROOT / "reference_trainer").rglob("*.py"))
    names = {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in files}
    return [name for name, file in names.items() if file.name != "__init__.py" or name == "reference_trainer"]


def test_every_module_is_mutated_for_exactly_one_contract_or_left_out_for_a_reason() -> None:
    contracts = pv.load([ROOT / "contracts"]).contracts
    held = Counter(module for contract in contracts for module in contract.mutation_scope.names)
    assert [module for module, count in held.items() if count > 1] == [], "mutated for two contracts"
    assert sorted(held) == sorted(set(modules()) - OUT.keys())
    assert OUT.keys() <= set(modules())
    assert all(OUT.values())
