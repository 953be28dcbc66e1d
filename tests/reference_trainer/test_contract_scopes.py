"""Every module of the trainer is mutated for exactly one contract, or is left out for a reason."""

from collections import Counter
from pathlib import Path

import pv

ROOT = Path(__file__).parents[2]

OUT = {
    "reference_trainer": "lazy names",
    "reference_trainer.__main__": "signals and missing packages of the process: tests/reference_trainer/test_cli*.py",
    **{
        f"reference_trainer.cli.{name}": "streams, help and exit codes: tests/reference_trainer/test_cli*.py"
        for name in ("distillation", "group", "outputs", "processes", "reporting", "tools")
    },
    "reference_trainer.interrupts": "signal handlers: tests/reference_trainer/test_interrupts.py",
    "reference_trainer.errors": "exception classes and the hint for a missing package",
    "reference_trainer.config.refusals": "wording of refusals: tests/reference_trainer/config",
    "reference_trainer.config.unused": "lines about settings: tests/reference_trainer/config",
    "reference_trainer.pipeline.notes": "lines about settings: tests/reference_trainer/pipeline/test_notes.py",
    "reference_trainer.distillation.domain": "constants",
    "reference_trainer.pipeline.figure": "drawing, with an extra: tests/reference_trainer/pipeline/test_figure.py",
    "reference_trainer.pipeline.plot": "the command `plot`: tests/reference_trainer/pipeline/test_plot.py",
    "reference_trainer.supervision.launch": "the command `launch`: tests/reference_trainer/supervision/test_launch.py",
    "reference_trainer.supervision.attempts": "processes: tests/reference_trainer/supervision/test_until.py",
    "reference_trainer.supervision.heartbeat": "processes: tests/reference_trainer/supervision/test_until.py",
    "reference_trainer.cli.rank": "processes: tests/reference_trainer/supervision/test_until.py",
    "reference_trainer.supervision.request": "refusals: tests/reference_trainer/supervision/test_until.py",
    "reference_trainer.supervision.until": "processes: tests/reference_trainer/supervision/test_until.py",
    "reference_trainer.callbacks.watchdog": "a timer: tests/reference_trainer/callbacks/test_watchdog.py",
    "reference_trainer.callbacks.lines": "terminal, bar and streams: tests/reference_trainer/callbacks",
    "reference_trainer.callbacks.tensorboard": "an extra: tests/reference_trainer/callbacks/test_tensorboard.py",
    "reference_trainer.huggingface.adapters": "an extra: tests/reference_trainer/huggingface, and contract adapters",
    "reference_trainer.huggingface.attention": "an extra: tests/reference_trainer/huggingface, and contract chats",
    "reference_trainer.huggingface.models": "an extra: tests/reference_trainer/huggingface",
    "reference_trainer.huggingface.parts": "an extra: tests/reference_trainer/huggingface",
    "reference_trainer.storage.cache_limit": "processes: tests/reference_trainer/storage/test_cache_limit.py",
    "reference_trainer.pipeline.own": "own code on a command line: tests/reference_trainer/pipeline/test_own.py",
}
"""Modules outside of every mutation scope, with the reason."""


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
