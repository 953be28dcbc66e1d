"""The attacks on the claims of observed training: the correct runs that they draw are accepted by every claim.

In `pv validate` an attack judges its claim alone.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from pv.suites.training_run import attacks, claims

FEW = settings(max_examples=3, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
ATTACKS = [
    attack
    for module in iter_modules(attacks.__path__, f"{attacks.__name__}.")
    for name, attack in vars(import_module(module.name)).items()
    if name.startswith("falsify_")
]
"""All attacks, by the order of their modules."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_every_claim_accepts_the_correct_runs_of_an_attack(attack: Callable[..., object]) -> None:
    subject = SimpleNamespace(
        run_of=claims.run_of,
        Run=claims.Run,
        Comparison=claims.Comparison,
        judge=lambda run, *_: claims.judge(run),
    )

    FEW(attack)(subject)
