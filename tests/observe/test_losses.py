"""Arguments and inputs of loss functions in a trace."""

import inspect
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="the observer needs torch")

import torch
import torch.nn.functional as F
from torch import Tensor

from pv.observe.heads import _is_parameter
from pv.observe.losses import _REDUCTION, NAMES, PARAMETERS, SIGNS, _arguments, _made_by


@pytest.mark.parametrize("name", [*NAMES, *SIGNS, "ctc_loss"])
def test_positional_arguments_have_the_names_of_the_parameters(name: str) -> None:
    names = PARAMETERS.get(name, ("input", "target", *_REDUCTION))
    assert tuple(inspect.signature(inspect.unwrap(getattr(F, name))).parameters)[: len(names)] == names


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_positional_reduction_of_a_huber_loss_is_recorded(reduction: str) -> None:
    assert _arguments("huber_loss", (None, None, reduction, 0.5), {})["reduction"] == reduction


@pytest.mark.parametrize(
    ("operation", "node"),
    [
        *((operation, "ReluBackward0") for operation in (torch.t, torch.clone, lambda x: x[1:], lambda x: x.flatten())),
        (torch.tanh, "TanhBackward0"),
        (torch.tril, "TrilBackward0"),
        (lambda x: F.threshold(x, 0.1, 0.0), "ThresholdBackward0"),
        (lambda x: x.index_fill(0, torch.tensor([0]), 1.0), "IndexFillBackward0"),
    ],
)
def test_only_operations_that_keep_values_are_skipped(operation: Callable[[Tensor], Tensor], node: str) -> None:
    assert _made_by(operation(torch.ones(4, 5, requires_grad=True).relu())) == node


def test_only_other_layouts_and_types_of_a_parameter_are_the_parameter() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    assert all(map(_is_parameter, (weight, weight.t(), weight.double(), weight.view(2, 8), weight.transpose(0, 1))))
    assert not any(map(_is_parameter, (weight.tanh(), weight.tril(), weight.topk(2).values, weight * 1)))
