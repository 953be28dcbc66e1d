"""Which settings of a job and which parts of a loop its source tells."""

import ast

import pytest

from pv.commands.loop_parts import Loop, called


def loop(text: str) -> Loop:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return Loop(node, {})


@pytest.mark.parametrize(
    ("parameter", "given"),
    [("lr", "rate"), ("grad_clip", "clip"), ("num_epochs", "epochs"), ("max_iters", "max_steps"), ("bs", "batch")],
)
def test_parameter_takes_the_setting_that_it_is_named_for(parameter: str, given: str) -> None:
    call = called(loop(f"def fit(model, {parameter}, data): ..."), "fit", {"job": "job", "model": "model"})
    assert call.text == f'fit(model=model, {parameter}=job.{given}, data=fill_in("data"))'


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ("decay: float", "job.decay or 0.0"),
        ("weight_decay: float", "job.decay or 0.0"),
        ("decay_lr: bool", 'job.schedule == "linear"'),
    ],
)
def test_decay_of_weights_is_not_that_of_the_rate(parameter: str, given: str) -> None:
    call = called(loop(f"def fit(model, {parameter}): ..."), "fit", {"job": "job", "model": "model"})
    assert call.text == f"fit(model=model, {parameter.split(':')[0]}={given})"
