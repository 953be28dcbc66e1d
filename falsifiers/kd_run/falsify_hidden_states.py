"""Attacks on the hidden states of wrapped modules: a teacher's carry no graph, a student's get their own gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.oracles import refusal_complaint

V = 3


class Layers(nn.Module):
    """A module whose results require a gradient, also under `torch.no_grad` and where its parameters are frozen.

    kept: the tensors that its last forward returned.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, V).double()
        self.factor = torch.ones((), dtype=torch.float64, requires_grad=True)
        self.layers, self.kept = layers, list[Tensor]()

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        with torch.enable_grad():
            state = self.embedding(tokens) * self.factor
            self.kept = [state * (layer + 1) for layer in range(self.layers)]
            return SimpleNamespace(logits=sum(self.kept, state), hidden_states=self.kept)


def _batch(subject: Any) -> Any:
    tokens = torch.tensor([[0, 1, 2, 1]])
    return subject.Batch(tokens=tokens, labels=tokens)


@given(layers=st.integers(1, 3), rearmed=st.booleans())
def falsify_teachers_hidden_states_carry_no_graph(subject: Any, layers: int, rearmed: bool) -> None:
    module = Layers(layers)
    teacher = subject.ModuleTeacher(module, V)
    module.requires_grad_(rearmed)  # as a student does that shares it
    outputs = teacher.outputs(_batch(subject))
    asking = [name for name, each in (("logits", outputs.logits), *enumerate(outputs.hidden_states)) if each.grad_fn]
    assert len(outputs.hidden_states) == layers and not asking, f"of {layers} hidden states, {asking} carry a graph"
    armed = [name for name, each in module.named_parameters() if each.requires_grad]
    assert not armed, f"the parameters {armed} of the teacher require a gradient"


@given(layers=st.integers(1, 3), given_gradients=st.integers(0, 4))
def falsify_each_hidden_state_gets_its_gradient(subject: Any, layers: int, given_gradients: int) -> None:
    module = Layers(layers)
    done = subject.ModuleStudent(module, V).forward_features(_batch(subject))
    asking = [each for each in (done.logits, *done.hidden_states) if each.requires_grad]
    assert not asking, f"{len(asking)} of the results of a pass carry its graph"
    ones = torch.ones(1, 4, V, dtype=torch.float64)

    def backward() -> None:
        done.backward(ones, [ones] * given_gradients)

    if given_gradients not in (0, layers):
        complaint = refusal_complaint(f"{given_gradients} gradients for {layers} hidden states", backward)
        assert complaint is None, complaint
        return
    backward()
    of_states = sum(range(1, layers + 1))
    counts = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)  # of each token in the batch
    expected = (1 + of_states + of_states * bool(given_gradients)) * counts[:, None].expand(V, V)
    seen = module.embedding.weight.grad
    assert seen is not None and torch.equal(seen, expected), f"the gradient is {seen}; expected {expected}"
