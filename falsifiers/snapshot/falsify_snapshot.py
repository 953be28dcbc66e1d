"""Attacks on saving and restoring modules and an optimizer. The subject is `storage.snapshot`, or has its names."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.support.oracles import refusal_complaint
from reference_trainer.errors import CheckpointError

Optimizers = Callable[[Iterable[Any]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizers] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "AdamW, amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


class Model(nn.Module):
    """Dropout, buffers of running means, a scalar, shared weights, and a parameter without a gradient."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.input, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.output = nn.Linear(4, 4)
        self.output.weight = nn.Parameter(self.output.weight.detach().T)  # strides other than those of its copy
        self.tied = self.output
        self.scale, self.unused = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.ones(2))
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.input(x)))
        return (self.scale * self.tied(self.output(hidden))).square().mean()


class Pair:
    """Two modules with one optimizer in two groups; `steps` trains them."""

    def __init__(self, seed: int, kind: str = "AdamW", dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(seed)
        self.dtype, model, head = dtype, Model(dtype), nn.Linear(2, 1, dtype=dtype)
        self.modules = {"student": model, "head": head}
        groups = [{"params": list(model.parameters())}, {"params": list(head.parameters()), "weight_decay": 0.5}]
        self.optimizer = OPTIMIZERS[kind](groups)

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            torch.manual_seed(step)
            x = torch.randn(5, 3, dtype=self.dtype)
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 / step
            self.optimizer.zero_grad(set_to_none=True)
            (self.modules["student"](x) + self.modules["head"](x[:, :2]).square().mean()).backward()
            self.optimizer.step()

    def bits(self) -> dict[str, Tensor]:
        """Return weights, buffers and state by position, with their names."""
        weights = {f"{m}.{n}": t for m, each in self.modules.items() for n, t in each.state_dict().items()}
        held = [each for group in self.optimizer.param_groups for each in group["params"]]
        states = [self.optimizer.state.get(each, {}) for each in held]
        return weights | {f"{k}.{what}": each for k, state in enumerate(states) for what, each in state.items()}


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
    """Weights and buffers alone are saved and restored."""
    straight, fresh = Pair(1), Pair(2)
    subject.restore(subject.snapshot(straight.modules, None), fresh.modules, None)
    assert_same("without an optimizer", fresh.bits(), straight.bits())


Change = Callable[[dict[str, Tensor], dict[str, Any]], object]
MOMENT, WEIGHT = "optimizer.student.input.weight.exp_avg", "student.input.weight"


def _replaced(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors, optimizer: tensors.update({name: change(tensors[name])})


def _without(*ends: str) -> Change:
    def change(tensors: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        for name in [each for each in tensors if each.endswith(ends)]:
            del tensors[name]

    return change


CHANGES: dict[str, Change] = {
    "a weight missing": _without(WEIGHT),
    "a buffer missing": _without("running_mean"),
    "an unknown weight": lambda t, o: t.update({"student.more": torch.ones(1)}),
    "a weight of another shape": _replaced(WEIGHT, lambda w: w.T.contiguous()),
    "a weight that broadcasts": _replaced(WEIGHT, lambda w: w[:1]),
    "a weight of another dtype": _replaced(WEIGHT, Tensor.double),
    "a moment missing": _without(MOMENT),
    "a number of steps missing": _without("optimizer.head.bias.step"),
    "an unknown state": lambda t, o: t.update({"optimizer.head.bias.momentum": t["head.bias"]}),
    "the state of an unknown parameter": lambda t, o: t.update({"optimizer.head.more.step": torch.tensor(1.0)}),
    "a moment of another shape": _replaced(MOMENT, lambda m: m.T.contiguous()),
    "a moment that broadcasts": _replaced(MOMENT, lambda m: m[:1]),
    "a moment of another dtype": _replaced(MOMENT, Tensor.bfloat16),
    "steps that are a list": _replaced("optimizer.head.bias.step", lambda s: s[None]),
    "steps that are integers": _replaced("optimizer.head.bias.step", lambda s: s.long()),
    "another kind of optimizer": lambda t, o: o.update(kind="SGD"),
    "other betas": lambda t, o: o.update({"0.betas": [0.8, 0.999]}),
    "another weight decay": lambda t, o: o.update({"1.weight_decay": 0.25}),
    "a fused optimizer": lambda t, o: o.update({"0.fused": True}),
    "a missing option": lambda t, o: o.pop("0.eps"),
    "another order of parameters": lambda t, o: o["0.parameters"].reverse(),
    "a group missing": lambda t, o: [o.pop(each) for each in list(o) if each.startswith("1.")],
}


WORDS = {
    "another kind of optimizer": 'kind was "SGD" and is "AdamW"',
    "the state of an unknown parameter": "optimizer state: [] are missing and ['head.more'] are unknown",
    "a moment of another dtype": "student.input.weight.exp_avg is bfloat16 [4, 3]; expected float32 [4, 3]",
    "other betas": "0.betas was [0.8, 0.999] and is [0.9, 0.999]",
    "a number of steps missing": "optimizer state of head.bias: ['step'] are missing and [] are unknown",
    "a weight missing": "weights: ['student.input.weight'] are missing and [] are unknown",
    "an unknown weight": "weights: [] are missing and ['student.more'] are unknown",
    "a weight of another dtype": "student.input.weight is float64 [4, 3]; expected float32 [4, 3]",
}
"""What some refusals say."""


@given(kind=st.sampled_from(list(CHANGES)))
def falsify_other_state_is_refused(subject: Any, kind: str) -> None:
    """A CheckpointError for each difference, and neither weights nor optimizer are changed."""
    straight, other = Pair(1), Pair(2)
    straight.steps(1, 2)
    other.steps(1, 1)
    saved = subject.snapshot(straight.modules, straight.optimizer)
    CHANGES[kind](saved.tensors, saved.optimizer)
    before = copy.deepcopy(other.bits())
    call = partial(subject.restore, saved, other.modules, other.optimizer)
    complaint = refusal_complaint(kind, call, WORDS.get(kind, ""), kind=CheckpointError)
    assert complaint is None, complaint
    assert_same(f"refused for {kind}", other.bits(), before)


def falsify_options_of_a_saved_optimizer_do_not_replace_those_of_the_run(subject: Any) -> None:
    """The learning rate is not restored: it is that of the run, which sets it before every step."""
    straight, other = Pair(1), Pair(2)
    straight.steps(1, 3)
    subject.restore(subject.snapshot(straight.modules, straight.optimizer), other.modules, other.optimizer)
    rates = [group["lr"] for group in other.optimizer.param_groups]
    assert rates == [0.1, 0.1], f"the learning rates are {rates}; expected those that were set, 0.1"


class Odd(torch.optim.SGD):
    """An optimizer whose state is no tensor."""

    def step(self, closure: Any = None) -> Any:
        self.state[self.param_groups[0]["params"][0]]["seen"] = 3
        return super().step(closure)


def falsify_state_that_cannot_be_saved_is_refused(subject: Any) -> None:
    """Parameters of no module, state that is no tensor or has another shape, and options that are no JSON."""
    pair = Pair(1)
    pair.steps(1, 1)
    weights = list(pair.modules["head"].parameters())
    odd = Odd(weights, lr=0.1)
    odd.step()
    shaped = copy.deepcopy(pair)
    shaped.optimizer.state[shaped.optimizer.param_groups[0]["params"][0]]["rows"] = torch.ones(1)
    strange = torch.optim.SGD([{"params": weights, "note": object()}], lr=0.1)
    endless = torch.optim.SGD([{"params": weights, "note": float("nan")}], lr=0.1)
    refused: dict[str, Callable[[], object]] = {
        "a module is left out": lambda: subject.snapshot({"student": pair.modules["student"]}, pair.optimizer),
        "a state is an integer": lambda: subject.snapshot(pair.modules, odd),
        "a state has another shape": lambda: subject.snapshot(shaped.modules, shaped.optimizer),
        "an option is an object": lambda: subject.snapshot(pair.modules, strange),
        "an option is not finite": lambda: subject.snapshot(pair.modules, endless),
        "a module is called optimizer": lambda: subject.snapshot({"optimizer": nn.Linear(1, 1)}, None),
    }
    complaints = [refusal_complaint(name, call, kind=CheckpointError) for name, call in refused.items()]
    assert not any(complaints), complaints


def falsify_snapshot_fields(subject: Any) -> None:
    """Tensors are on the CPU, contiguous in memory of their own, without a graph."""
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


def falsify_optimizer_and_no_optimizer_are_told_apart(subject: Any) -> None:
    """A run with an optimizer is not restored into one without, and the other way round; the message has both kinds."""
    straight, other = Pair(1), Pair(2)
    with_it, without = subject.snapshot(straight.modules, straight.optimizer), subject.snapshot(straight.modules, None)
    refused = {
        'kind was "AdamW" and is null': partial(subject.restore, with_it, other.modules, None),
        'kind was null and is "AdamW"': partial(subject.restore, without, other.modules, other.optimizer),
    }
    complaints = [refusal_complaint(words, call, words, kind=CheckpointError) for words, call in refused.items()]
    assert not any(complaints), complaints


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
    """Of a divided tensor and its moments the shard of this rank is saved, and only the shard is written."""
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
