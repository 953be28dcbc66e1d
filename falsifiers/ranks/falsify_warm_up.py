"""Attacks on the backward pass with which the ranks begin: nothing that a run starts from may change."""

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from falsifiers.support.ranks import run_ranks
from reference_trainer.errors import SettingError


class Changing(nn.Module):
    """A module with all that a forward may change: statistics, counters of several dtypes, and random numbers."""

    def __init__(self, *, named: bool) -> None:
        super().__init__()
        self.embedding, self.norm, self.drop = nn.Embedding(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.named = named
        self.register_buffer("seen", torch.zeros(4, dtype=torch.bool))
        self.register_buffer("calls", torch.zeros((), dtype=torch.uint8), persistent=False)

    def forward(self, tokens_BT: Tensor) -> Any:
        self.seen[tokens_BT.flatten()] = True
        self.calls += 1
        features_NW = self.embedding(tokens_BT).flatten(0, 1)
        logits_NW = self.drop(self.norm(features_NW))
        return SimpleNamespace(logits=logits_NW) if self.named else logits_NW


@given(named=st.booleans(), training=st.booleans(), seed=st.integers(0, 3))
def falsify_warm_up_changes_nothing(subject: Any, named: bool, training: bool, seed: int) -> None:
    """named: whether the forward returns an object with logits."""

    def work(rank: int) -> list[str]:
        torch.manual_seed(seed)
        module = DistributedDataParallel(Changing(named=named)).train(training)
        before, state = _described(module), torch.get_rng_state()
        subject.warm_up(module, torch.zeros(1, 2, dtype=torch.int64))
        changed = [name for name, value in _described(module).items() if not torch.equal(value, before[name])]
        changed += [f"gradient of {name}" for name, each in module.named_parameters() if each.grad is not None]
        changed += [] if torch.equal(torch.get_rng_state(), state) else ["random numbers"]
        return changed + [name for name, each in module.named_modules() if each.training is not training]

    seen = run_ranks(2, work)
    assert seen == [[], []], f"the first backward pass changed {seen} on the ranks"


@given(frozen=st.booleans())
def falsify_unused_parameters_are_refused(subject: Any, frozen: bool) -> None:
    def work(rank: int) -> str:
        inner = Changing(named=False)
        inner.other_head = nn.Linear(3, 3).requires_grad_(not frozen)
        try:
            subject.warm_up(DistributedDataParallel(inner), torch.zeros(1, 2, dtype=torch.int64))
        except SettingError as error:
            return str(error)
        return ""

    for rank, seen in enumerate(run_ranks(2, work)):
        expected = "no error" if frozen else "its names"
        held = not seen if frozen else "other_head.weight" in seen and "embedding" not in seen
        assert held, f"an unused parameter, frozen={frozen}: rank {rank} ends with {seen!r}; expected {expected}"


def _described(module: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in (*module.named_parameters(), *module.named_buffers())}
