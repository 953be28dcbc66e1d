"""The effort of a trial, as reports show it."""

from typing import Any

import pytest

from pv.engines.registry import engine_named
from pv.engines.trial import EquationMutants, TrialStatus
from tests.results.handmade import trial


@pytest.mark.parametrize(
    ("engine", "fields", "text"),
    [
        ("property", {"valid": 100, "asked": 100}, "100 valid examples, seed 7, 0.50 s"),
        ("property", {"valid": 1, "asked": 9, "invalid": 3},
            "1 valid example of 9 requested (3 rejected), seed 7, 0.50 s"),
        ("property", {"status": TrialStatus.REFUTED, "valid": 3, "asked": 9}, "3 valid examples, seed 7, 0.50 s"),
        ("property", {"status": TrialStatus.TIMEOUT, "valid": 3}, "for 0.50 s, seed 7"),
        ("equation", {"valid": 2}, "2 valid examples, seed 7, 0.50 s"),
        ("equation", {"valid": 2, "equation_mutants": EquationMutants(killed=3, total=4)},
            "2 valid examples, 3 of 4 equation mutants killed, seed 7, 0.50 s"),
        ("observed", {"valid": 3}, "3 times"),
        ("observed", {"status": TrialStatus.CRASHED}, "for 0.50 s, seed 7"),
    ],
)  # fmt: skip
def test_effort_names_examples_seed_and_seconds(engine: str, fields: dict[str, Any], text: str) -> None:
    assert engine_named(engine).effort(trial(**{"seconds": 0.5, "seed": 7, **fields})) == text
