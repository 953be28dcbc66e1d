"""Attacks on saving and restoring modules and an optimizer. The subject is `storage.snapshot`, or has its names."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.train_state.pairs import OPTIMIZERS, Pair

KINDS = st.sampled_from(list(OPTIMIZERS))
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@given(kind=KINDS, dtype=DTYPES, before=st.integers(0, 3), after=st.integers(1, 3))
def falsify_restored_run_goes_on_bit_for_bit(
    subject: Any, kind: str, dtype: torch.dtype, before: int, after: int
) -> None:
    """Restored into new modules and a new or a used optimizer, weights, buffers and state stay equal in every bit.

    Saving changes nothing, and what was saved does not change when the run goes on.
    """
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
        strides = {key: each.stride() for key, each in pair.bits().items()}
        assert strides == {key: each.stride() for key, each in unseen.items()}, f"{name} has the strides {strides}"
        pair.steps(before + 1, before + after)
        assert_same(f"{name}, {after} steps later", pair.bits(), straight.bits())


def falsify_run_without_optimizer(subject: Any) -> None:
    straight, fresh = Pair(1), Pair(2)
    subject.restore(subject.snapshot(straight.modules, None), fresh.modules, None)
    assert_same("without an optimizer", fresh.bits(), straight.bits())


def falsify_options_of_a_saved_optimizer_do_not_replace_those_of_the_run(subject: Any) -> None:
    straight, other = Pair(1), Pair(2)
    straight.steps(1, 3)
    subject.restore(subject.snapshot(straight.modules, straight.optimizer), other.modules, other.optimizer)
    rates = [group["lr"] for group in other.optimizer.param_groups]
    assert rates == [0.1, 0.1], f"the learning rates are {rates}; expected those that were set, 0.1"


def falsify_snapshot_fields(subject: Any) -> None:
    pair = Pair(1)
    pair.steps(1, 1)
    saved = subject.snapshot(pair.modules, pair.optimizer)
    live = {each.data_ptr() for each in pair.bits().values()}
    for name, each in saved.tensors.items():
        assert each.device.type == "cpu" and not each.requires_grad, f"{name} is on {each.device}, or needs a gradient"
        assert each.data_ptr() not in live, f"{name} shares its memory with the run"
    names = [field.name for field in dataclasses.fields(saved)]
    assert names == ["tensors", "optimizer"], f"a snapshot has the fields {names}"


@given(fused=st.booleans(), capturable=st.booleans(), kind=st.sampled_from(["AdamW", "AdamW, amsgrad"]))
def falsify_state_is_placed_as_the_optimizer_creates_it(subject: Any, fused: bool, capturable: bool, kind: str) -> None:
    """On another device: moments there, numbers of steps on the CPU, or there too for kernels that read them.

    The device is `meta`, which has no memory: only places can be seen.
    """
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


class Divided(Tensor):
    """A tensor of which this rank has row 1, as a `DTensor` has a shard."""

    def to_local(self) -> Tensor:
        return self.as_subclass(Tensor)[1:2]


class Sharded(nn.Module):
    """A module with a divided weight and a whole one, and an optimizer with momentum."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 2), value).as_subclass(Divided))
        self.bias = nn.Parameter(torch.full((2,), value))
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def fill(self, value: float) -> None:
        for each in self.parameters():
            self.optimizer.state[each]["momentum_buffer"] = torch.full_like(each, value, requires_grad=False)


def falsify_shards_are_saved_and_restored(subject: Any) -> None:
    straight, other = Sharded(1.0), Sharded(2.0)
    straight.fill(3.0)
    saved = subject.snapshot({"student": straight}, straight.optimizer)
    shapes = {name: (type(each), tuple(each.shape)) for name, each in saved.tensors.items()}
    expected = {
        "student.weight": (Tensor, (1, 2)),
        "student.bias": (Tensor, (2,)),
        "optimizer.student.weight.momentum_buffer": (Tensor, (1, 2)),
        "optimizer.student.bias.momentum_buffer": (Tensor, (2,)),
    }
    assert shapes == expected, f"the tensors are {shapes}; expected {expected}"
    subject.restore(saved, {"student": other}, other.optimizer)
    rows = [other.weight.as_subclass(Tensor)[row].tolist() for row in range(3)]
    assert rows == [[2, 2], [1, 1], [2, 2]], f"the weight has the rows {rows}; expected row 1 of the saved run"
    moments = other.optimizer.state[other.weight]["momentum_buffer"]
    assert isinstance(moments, Divided) and moments.to_local().tolist() == [[3, 3]], f"the moments are {moments}"
    assert other.optimizer.state[other.bias]["momentum_buffer"].tolist() == [3, 3], "the moments of the bias are lost"
