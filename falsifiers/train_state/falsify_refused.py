"""Attacks on state that cannot be saved or restored. The subject is `storage.snapshot`, or has its names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.support.oracles import assert_refused
from falsifiers.train_state.pairs import Pair
from reference_trainer.errors import CheckpointError

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
