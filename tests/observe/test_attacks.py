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
from pv.suites.training_run.attacks.drawn import Plan, of_kind
from pv.suites.training_run.attacks.resume import comparable_trace

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


def test_attack_on_weights_of_ranks_tries_tensor_parallelism() -> None:
    plan = Plan(((((5, 6), (7, 8)),) * 3,) * 2, scale=1.0, clip=False, logits=False, stream=False)
    attacks.ranks.falsify_ranks_have_the_same_weights.hypothesis.inner_test(claims, plan, None)


def test_ranks_with_different_numbers_of_optimizers_are_compared() -> None:
    plan = Plan(((((5,), (6,)),) * 3,) * 2, scale=1.0, clip=False, logits=False, stream=False)
    first, second = comparable_trace(plan), comparable_trace(plan)
    first.append({"event": "save", "n": len(first), "parts": ["model"], "step": 6, "at": "t.py:9"})
    second[0]["rank"] = 1
    for step in of_kind(second, "step"):
        second.insert(second.index(step), step | {"optimizer": 2})
    run = claims.run_of([first, second], complete=True)
    comparison = claims.Comparison(kind="extended", uncut=run, repeat=None, parts=(run, run), status=0)
    whole = claims.Run(processes=run.processes, complete=True, comparisons=(comparison,))
    assert claims.judge(whole, "TR-RESUME-007")["TR-RESUME-007"].tried == 2  # the optimizer that both ranks have
