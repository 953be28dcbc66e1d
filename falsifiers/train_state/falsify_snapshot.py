"""Attacks on snapshots: what is saved and restored, and how large it is. The subject is `storage.snapshot`."""

from __future__ import annotations

import copy
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.train_state.pairs import OPTIMIZERS, Pair
from reference_trainer.training.masters import MasterAdamW

KINDS = st.sampled_from(list(OPTIMIZERS))
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@given(kind=KINDS, dtype=DTYPES, before=st.integers(0, 3), after=st.integers(1, 3))
def falsify_restored_run_goes_on_bit_for_bit(
    subject: Any, kind: str, dtype: torch.dtype, before: int, after: int
) -> None:
    straight, fresh, used = (Pair(seed, kind, dtype) for seed in (1, 2, 3))
    used.steps(7, 8)
    straight.steps(1, before)
    unseen = copy.deepcopy(straight.bits())
    saved = subject.snapshot(straight.modules, straight.optimizer)
    assert_same("after the snapshot", straight.bits(), unseen)
    straight.steps(before + 1, before + after)
    for name, pair in (("a fresh run", fresh), ("a used run", used)):
        subject.restore(saved, pair.modules, pair.optimizer)
        assert_same(f"{name} restored after step {before}", pair.bits(), unseen)
        rates = [group["lr"] for group in pair.optimizer.param_groups]
        assert rates == [0.1 / 8 if pair is used else 0.1] * 2, f"restoring sets the learning rates {rates}"
        strides = {key: each.stride() for key, each in pair.bits().items()}
        assert strides == {key: each.stride() for key, each in unseen.items()}, f"{name} has the strides {strides}"
        pair.steps(before + 1, before + after)
        assert_same(f"{name}, {after} steps later", pair.bits(), straight.bits())


@given(fused=st.booleans(), capturable=st.booleans(), kind=st.sampled_from(["AdamW", "AdamW, amsgrad"]))
def falsify_state_is_placed_as_the_optimizer_creates_it(subject: Any, fused: bool, capturable: bool, kind: str) -> None:
    """The device is `meta`, which has no memory: only places can be seen."""
    pair, other = Pair(1, kind), _on_meta(kind)
    pair.steps(1, 2)
    for group in (*pair.optimizer.param_groups, *other.optimizer.param_groups):
        group.update(fused=fused, capturable=capturable)
    subject.restore(subject.snapshot(pair.modules, pair.optimizer), other.modules, other.optimizer)
    for state in other.optimizer.state.values():
        for what, each in state.items():
            expected = "cpu" if what == "step" and not (fused or capturable) else "meta"
            assert each.device.type == expected, (
                f"with fused {fused} and capturable {capturable}, {what} is on {each.device}; expected {expected}"
            )


def _on_meta(kind: str) -> Pair:
    """Return a pair whose modules are on the device `meta`, with an optimizer of their parameters."""
    with torch.device("meta"):
        return Pair(2, kind)


class Sized(nn.Module):
    """Shared weights, a buffer that is saved and one that is not, and `frozen` of its parameters without gradients."""

    def __init__(self, width: int, frozen: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 3, dtype=dtype), nn.Linear(width, 3, bias=False, dtype=dtype)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float32))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("cache", torch.zeros(1000), persistent=False)
        for each in list(self.parameters())[:frozen]:
            each.requires_grad_(False)


@given(
    width=st.integers(1, 9),
    frozen=st.integers(0, 2),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    steps=st.integers(1, 2),
    masters=st.booleans(),
)
def falsify_size_is_known_before_the_training(
    subject: Any, width: int, frozen: int, dtype: torch.dtype, steps: int, masters: bool
) -> None:
    module = Sized(width, frozen, dtype)
    optimizer = (MasterAdamW if masters else torch.optim.AdamW)(module.parameters())
    told = sorted(map(_kind, subject.expected_tensors(module, masters=masters)))
    for _ in range(steps):
        for each in module.parameters():
            each.grad = torch.ones_like(each) if each.requires_grad else None
        optimizer.step()
    expected = sorted(map(_kind, subject.snapshot({"student": module}, optimizer).tensors.values()))
    assert told == expected, f"a snapshot is said to have {told}; it has {expected}"


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
