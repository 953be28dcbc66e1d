import math

import pytest
import torch

from pv.suites.optimizer.formulas import FORMULAS, MISTAKES, close

ONE = torch.ones(1, dtype=torch.float64)
ADAM = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.5}


def test_a_first_step_of_adam_is_the_rate_against_the_sign() -> None:
    assert float(FORMULAS["adam"](ONE, [2 * ONE], [{**ADAM, "weight_decay": 0}])) == pytest.approx(1 - 0.1 * 2 / 2.001)
    assert float(FORMULAS["adamw"](ONE, [2 * ONE], [ADAM])) == pytest.approx(0.95 - 0.1 * 2 / 2.001)


def test_momentum_starts_with_the_whole_first_gradient() -> None:
    group = {"lr": 0.1, "momentum": 0.5, "dampening": 0.5}
    assert float(FORMULAS["sgd"](ONE, [ONE, ONE], [group] * 2)) == pytest.approx(1 - 0.1 - 0.1 * (0.5 + 0.5))
    nesterov = {"lr": 0.1, "momentum": 0.5, "nesterov": True}
    assert float(FORMULAS["sgd"](ONE, [ONE], [nesterov])) == pytest.approx(1 - 0.1 * 1.5)


@pytest.mark.parametrize("name", FORMULAS)
def test_mistakes_give_other_weights(name: str) -> None:
    group = {**ADAM, "eps": 0.1, "momentum": 0.9, "dampening": 0.5}
    right = FORMULAS[name](ONE, [0.01 * ONE] * 2, [group] * 2)
    for mistake in MISTAKES[name].values():
        assert not close(FORMULAS[name](ONE, [0.01 * ONE] * 2, [group] * 2, **mistake), right, ONE, 2)  # type: ignore[call-arg]


def test_nan_is_close_to_nothing() -> None:
    assert not close(ONE * math.nan, ONE, ONE, 1)
