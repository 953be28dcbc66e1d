"""Attacks on a student that is divided among ranks: its gathers, its gradients and its place."""

from __future__ import annotations

import copy
import os
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from falsifiers.ranks.group import Collectives
from falsifiers.support.ranks import run_ranks

WIDTH, TOKENS = 2, 3
HALVES = st.integers(-2, 2).map(lambda n: n / 2)
"""Sums and products of a few of them are exact in float32."""


class Layered(nn.Module):
    """An embedding and a list of layers, one of which has no parameters."""

    def __init__(self, weights: list[float], dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH, dtype=dtype)
        linear = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype) for _ in range(2)]
        self.layers = nn.ModuleList([linear[0], nn.Identity(), linear[1]])
        values = torch.tensor(weights, dtype=dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(values[: parameter.numel()].view_as(parameter))

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.embedding(tokens)
        for layer in self.layers:
            states = layer(states)
        return states


@given(
    weights=st.lists(HALVES, min_size=TOKENS * WIDTH, max_size=TOKENS * WIDTH),
    factors=st.lists(st.integers(-2, 2), min_size=6, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    ranks=st.sampled_from([2, 3]),
)
def falsify_shards_are_gathered_layer_by_layer(
    subject: Any, weights: list[float], factors: list[int], dtype: torch.dtype, ranks: int
) -> None:
    batches = [torch.tensor([[(r + m) % TOKENS for m in range(2)]]) for r in range(6)]
    micro_batches = [list(zip(batches[r::ranks], factors[r::ranks], strict=True)) for r in range(ranks)]

    def work(rank: int) -> Any:
        module = subject.shard(Layered(weights, dtype), torch.device("cpu"))
        places = []
        for named in ({"LOCAL_RANK": str(rank + 5)}, {}):
            with mock.patch.dict(os.environ, named, clear=True):
                parallel = subject.ShardedParallel(module)
                places.append((parallel.rank, parallel.local_rank, parallel.world_size))
        with torch.no_grad(), Collectives() as collectives:
            module(batches[0])
        divided = [isinstance(parameter, DTensor) for parameter in module.parameters()]
        for k, (tokens, factor) in enumerate(micro_batches[rank], start=1):
            with parallel.micro_batch(last=k == len(micro_batches[rank])):
                (module(tokens).sum() * factor).backward()
        gradients = [parameter.grad.full_tensor() for parameter in module.parameters()]
        return places, [seen[0] for seen in collectives.seen], divided, gradients

    # In a rank: autograd refuses to run in a fork of a process that has used it where there is a GPU.
    (expected,) = run_ranks(1, lambda rank: _gradients(Layered(weights, torch.float64), batches, factors))
    for rank, (places, gathers, divided, gradients) in enumerate(run_ranks(ranks, work)):
        what = f"rank {rank} of {ranks} in {dtype}"
        wanted = [(rank, rank + 5, ranks), (rank, rank, ranks)]
        assert places == wanted, f"{what}: rank, local_rank and world_size are {places}; expected {wanted}"
        assert len(gathers) == 3, f"{what}: an evaluation has the collectives {gathers}; expected 3 gathers"
        assert all(divided), f"{what}: after an evaluation, {divided.count(False)} parameters are not divided"
        for seen, each in zip(gradients, expected, strict=True):
            assert torch.equal(seen.double(), each), f"{what}: a gradient is {seen.tolist()}; expected {each.tolist()}"


def _gradients(module: nn.Module, batches: list[Tensor], factors: list[int]) -> list[Tensor]:
    """Return the gradients of the sum over all micro-batches, by autograd on the undivided module, float64."""
    whole = copy.deepcopy(module)
    losses = [whole(tokens).sum() * factor for tokens, factor in zip(batches, factors, strict=True)]
    torch.stack(losses).sum().backward()
    return [parameter.grad for parameter in whole.parameters() if parameter.grad is not None]
