"""Attacks on the random numbers of a run: seeds, and a mask for each micro-batch whatever else is drawn."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.optimizer_update.noise import Noisy, masks

SEEDS = st.integers(0, 2**64)


@given(seed=SEEDS, before=st.integers(0, 1000), events=st.sets(st.sampled_from(["on_step_end", "on_epoch_end"])))
def falsify_masks_depend_on_nothing_else(subject: Any, device: str, seed: int, before: int, events: set[str]) -> None:
    expected = masks(subject, device, seed=seed)
    module = Noisy(device)

    def act(callback: int, event: str, context: Any) -> None:
        if event in events:
            torch.rand(context.step, device=device)
            module(torch.zeros(1, 1, dtype=torch.long, device=device))  # an evaluation that forgot eval mode
            module.masks.pop()

    torch.manual_seed(before)
    seen = masks(subject, device, seed=seed, callbacks=recording_callbacks(1, act), module=module)
    assert seen == expected, f"random numbers drawn before and at {sorted(events)} changed the masks of seed {seed}"


@given(seed=SEEDS, other=SEEDS)
def falsify_masks_differ(subject: Any, device: str, seed: int, other: int) -> None:
    runs: dict[str, list[str]] = {}
    for name, s, rank in {(f"seed {s}, rank {r}", s, r) for s in (seed, other) for r in (0, 1)}:
        data = runs[f"data of {name}"] = []
        runs[name] = masks(subject, device, seed=s, rank=rank, data=data)
    every = [(f"{run}, micro-batch {n}", mask) for run, found in runs.items() for n, mask in enumerate(found)]
    first: dict[str, str] = {}
    for name, mask in every:
        assert first.setdefault(mask, name) == name, f"{name} has the mask of {first[mask]}"


def _generators() -> tuple[Any, ...]:
    cuda = [torch.cuda.get_rng_state().tolist()] if torch.cuda.is_available() else []
    return torch.get_rng_state().tolist(), random.getstate(), cuda


@given(seed=SEEDS, raises=st.sampled_from([None, "on_train_begin", "on_step_end", "on_train_end"]))
def falsify_generators_are_restored(subject: Any, device: str, seed: int, raises: str | None) -> None:
    def act(callback: int, event: str, context: Any) -> None:
        if event == raises:
            raise KeyError("on purpose")

    torch.manual_seed(seed % 1000)
    before, raised = _generators(), False
    try:
        masks(subject, device, seed=seed, callbacks=recording_callbacks(1, act))
    except KeyError:
        raised = True
    assert raised == (raises is not None), f"the exception of {raises} did not reach the caller"
    assert _generators() == before, f"the generators differ after a run of seed {seed} (exception in {raises})"


VALUES = (0, 1, 2, 11, 12, 21, 111)
"""Numbers whose digits can be read as those of their neighbours: 1 and 11, 11 and 1."""


def falsify_seeds_never_collide(subject: Any) -> None:
    first: dict[int, tuple[int, ...]] = {}
    for at in itertools.product(VALUES, repeat=5):
        run, epoch, step, micro_batch, rank = at
        seed = subject.micro_batch_seed(run, epoch=epoch, step=step, micro_batch=micro_batch, rank=rank)
        assert 0 <= seed < 2**63, f"(seed, epoch, step, micro-batch, rank) {at} has the seed {seed}"
        assert first.setdefault(seed, at) == at, f"{at} and {first[seed]} have the same seed {seed}"
