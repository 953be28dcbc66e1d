"""Which settings of a job and which parts of a loop its source tells."""

import ast

import pytest

from pv.commands.loop_parts import Loop, attributes, called

CLASS = """
class Trainer:
    def __init__(self, model, data): self.optimizer, self.last_loss, self.global_step = None, 0.0, 0
    def train_step(self, batch, scale): ...
    def step(self, batch): ...
    def validate(self, loader): ...
"""


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


def test_parameter_with_a_default_that_no_setting_is_for_keeps_it() -> None:
    call = called(loop("def fit(model, *, verbose=True, lr=1.0): ..."), "fit", {"job": "job", "model": "model"})
    assert call.text == "fit(model=model, lr=job.rate)"


def test_method_that_asks_for_least_plays_the_role() -> None:
    found = {role: loop(CLASS).method(role) for role in ("update", "evaluate", "save")}
    assert [each and each.name for each in found.values()] == ["step", "validate", None]


def test_attributes_hold_the_numbers_of_a_step() -> None:
    assert attributes(loop(CLASS)) == {
        "loss": "self.loop.last_loss",
        "rate": 'self.loop.optimizer.param_groups[0]["lr"]',
        "steps": "self.loop.global_step",
    }


def test_method_that_another_one_calls_does_not_play_the_role() -> None:
    inner = CLASS.replace(
        "def train_step(self, batch, scale): ...", "def train_step(self, batch, scale): self.step(batch)"
    )
    method = loop(inner).method("update")
    assert method is not None and method.name == "train_step"


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
