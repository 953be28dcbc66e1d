"""Attacks on weight decay: which weights it shrinks. The subject is `training.update`.

With a gradient of 0 the moments of AdamW stay 0, so that decay is the only change of a step.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

RATE, DECAY = 0.5, 0.01


class OwnNorm(nn.Module):
    """A norm of no class of PyTorch, as each model of transformers has its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))


def _layers(tied: bool) -> tuple[nn.ModuleDict, set[str]]:
    """Return modules of every kind, and the names of the parameters that decay."""
    layers = nn.ModuleDict(
        {
            "embedding": nn.Embedding(5, 4),
            "norm": nn.LayerNorm((2, 4)),
            "root": nn.RMSNorm(4),
            "own": OwnNorm(4),
            "linear": nn.Linear(4, 3),
            "convolution": nn.Conv1d(4, 3, 2),
            "head": nn.Linear(4, 5, bias=False),
        }
    )
    if tied:
        layers["head"].weight = layers["embedding"].weight
    return layers, {"linear.weight", "convolution.weight"} | (set() if tied else {"head.weight"})


@given(tied=st.booleans(), frozen=st.booleans(), data=st.data())
def falsify_norms_biases_and_embeddings_keep_their_size(
    subject: Any, device: str, tied: bool, frozen: bool, data: st.DataObject
) -> None:
    layers, decaying = _layers(tied)
    layers = layers.to(device)
    layers["linear"].weight.requires_grad_(not frozen)
    names = {each: name for name, each in layers.named_parameters()}
    optimizer = subject.new_optimizer(
        data.draw(st.permutations(list(names))), RATE, undecayed=subject.undecayed(layers)
    )
    held = [names[each] for group in optimizer.param_groups for each in group["params"]]
    wanted = sorted(set(names.values()) - ({"linear.weight"} if frozen else set()))
    assert sorted(held) == wanted, f"the optimizer holds {sorted(held)}; expected each of {wanted} once"
    before = {name: each.detach().clone() for each, name in names.items()}
    for each in names:
        each.grad = torch.zeros_like(each)
    optimizer.step()
    for each, name in names.items():
        decays = name in decaying and name in wanted
        _assert_shrunk(name, before[name], each.detach(), 1 - RATE * DECAY if decays else 1.0)


def _assert_shrunk(name: str, before: Tensor, after: Tensor, factor: float) -> None:
    expected = before * factor
    same = torch.equal(after, before) if factor == 1.0 else torch.allclose(after, expected, rtol=1e-6, atol=0)
    assert same, f"{name}, {list(before.shape)}, went from {before.flatten()[:3]} to {after.flatten()[:3]}; x {factor}"
