"""Handwritten optimizers in a trace."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="the observer needs torch")

from pv.observe.handwritten import HandwrittenOptimizer


@pytest.mark.parametrize(
    ("attributes", "options"),
    [
        ({"lr": 0.1}, {"lr": 0.1}),
        ({"learning_rate": 0.2}, {"lr": 0.2}),
        ({"lr": None, "learning_rate": 1}, {"lr": 1.0}),
        ({"rate": 0.1}, {}),
    ],
)
def test_rate_of_a_handwritten_optimizer_is_an_attribute_of_its_object(
    attributes: dict[str, object], options: dict[str, float]
) -> None:
    optimizer = HandwrittenOptimizer([], SimpleNamespace(**attributes))
    assert optimizer.param_groups == [{"params": [], **options}]


def test_update_by_statements_has_no_rate() -> None:
    assert HandwrittenOptimizer([]).param_groups == [{"params": []}]
