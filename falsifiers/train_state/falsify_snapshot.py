"""Attacks on the state of a run between two steps, and on its snapshot."""

import copy
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.support.oracles import assert_refused
from falsifiers.train_state.pairs import OPTIMIZERS, Pair
from falsifiers.train_state.steps import ANY, EIGHTHS, NAMES, Step, assert_same_state, bits, exact, noted, steps
from reference_trainer.errors import CheckpointError

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
    pair = Pair(1, kind)
    with torch.device("meta"):
        other = Pair(2, kind)
    pair.steps(1, 2)
    for group in (*pair.optimizer.param_groups, *other.optimizer.param_groups):
        group.update(fused=fused, capturable=capturable)
    subject.restore(subject.snapshot(pair.modules, pair.optimizer), other.modules, other.optimizer)
    for state in other.optimizer.state.values():
        for what, each in state.items():
            expected = "cpu" if what == "step" and not (fused or capturable) else "meta"
            assert each.device.type == expected, f"{fused}, {capturable}: {what} is on {each.device}"


TAKEN = st.lists(steps(EIGHTHS), max_size=6) | st.lists(steps(ANY), max_size=6)


@given(taken=TAKEN, pauses=st.sets(st.integers(0, 6)))
def falsify_state_of_noted_steps(subject: Any, taken: list[Step], pauses: set[int]) -> None:
    """pauses: the steps before which the state is saved and restored."""
    straight, state = noted(subject.initial_state(), taken), subject.initial_state()
    for number, step in enumerate(taken):
        if number in pauses:
            text = subject.state_to_json(state)
            json.loads(text, parse_constant=_no_json)
            state = subject.state_from_json(text)
        noted(state, [step])
    assert_same_state(f"saved and restored before the steps {sorted(pauses)} of {len(taken)}", state, straight)
    every = [sums["loss"].sum / sums["loss"].count if sums["loss"].count else None for sums, _ in taken]
    scored = [loss for loss in every if loss is not None]
    expected = {
        "steps": len(taken),
        "sequences": sum(sequences for _, sequences in taken),
        "tokens": sum(sums["loss"].count for sums, _ in taken),
        "initial_loss": next(iter(scored), None),
        "final_loss": next(reversed(scored), None),
        "best_loss": min(filter(math.isfinite, scored), default=None),
        "loss": next(reversed(every), None),
        "finite": all(map(math.isfinite, scored)),
    }
    for name, wanted in expected.items():
        seen = getattr(state, name)
        same = bits(seen) == bits(wanted) or (seen == wanted == 0)
        assert same, f"after steps with the losses {every}: {name} is {seen!r}; expected {wanted!r}"
    if all((each.sum * 8).is_integer() and abs(each.sum) <= 100 for sums, _ in taken for each in sums.values()):
        _assert_sums(state, taken)


def _assert_sums(state: Any, taken: list[Step]) -> None:
    """Assert exact sums, of numbers whose addition does not round."""
    every = {name: [sums[name] for sums, _ in taken if name in sums] for name in NAMES}
    expected = {name: exact(values) for name, values in every.items() if values}
    assert state.interval == expected, f"the interval has {state.interval}; expected {expected}"
    epoch = exact(every["loss"])
    assert state.epoch == epoch, f"the epoch has {state.epoch}; expected {epoch}"


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


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
    "an unknown weight": lambda t, o: t.update({"student.more": torch.ones(1)}),
    "a weight that broadcasts": _replaced(WEIGHT, lambda w: w[:1]),
    "a weight of another dtype": _replaced(WEIGHT, Tensor.double),
    "a moment missing": _without(MOMENT),
    "the state of an unknown parameter": lambda t, o: t.update({"optimizer.head.more.step": torch.tensor(1.0)}),
    "a moment of another dtype": _replaced(MOMENT, Tensor.bfloat16),
    "another kind of optimizer": lambda t, o: o.update(kind="SGD"),
    "other betas": lambda t, o: o.update({"0.betas": [0.8, 0.999]}),
    "a missing option": lambda t, o: o.pop("0.eps"),
}


WORDS = {
    "another kind of optimizer": 'kind was "SGD" and is "AdamW"',
    "other betas": "0.betas was [0.8, 0.999] and is [0.9, 0.999]",
    "a weight missing": "weights: missing ['student.input.weight'], unknown []",
    "a weight of another dtype": "student.input.weight is float64 [4, 3]; expected float32 [4, 3]",
}
"""What some refusals say."""


@given(kind=st.sampled_from(list(CHANGES)))
def falsify_other_state_is_refused(subject: Any, kind: str) -> None:
    straight, other = Pair(1), Pair(2)
    straight.steps(1, 2)
    other.steps(1, 1)
    saved = subject.snapshot(straight.modules, straight.optimizer)
    CHANGES[kind](saved.tensors, saved.optimizer)
    before = copy.deepcopy(other.bits())
    call = partial(subject.restore, saved, other.modules, other.optimizer)
    assert_refused(kind, call, WORDS.get(kind, ""), kind=CheckpointError)
    assert_same(f"refused for {kind}", other.bits(), before)
