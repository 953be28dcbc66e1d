"""Attacks on the dropout of a run: every micro-batch has its own mask, whatever else draws random numbers.

The subject is that of `noise`.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.optimizer_update.noise import Noisy, masks
from reference_trainer.training.randomness import micro_batch_seed

SEEDS = st.integers(0, 2**64)
PLACES = ((1, 1, 0), (1, 1, 1), (1, 2, 0), (2, 3, 0), (2, 3, 1), (2, 4, 0))
"""Epoch, step and micro-batch of the forwards of a run."""


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


@given(seed=SEEDS, rank=st.integers(0, 3))
def falsify_masks_are_those_of_their_place(subject: Any, device: str, seed: int, rank: int) -> None:
    seen, expected = masks(subject, device, seed=seed, rank=rank), []
    for epoch, step, micro_batch in PLACES:
        torch.manual_seed(micro_batch_seed(seed, epoch=epoch, step=step, micro_batch=micro_batch, rank=rank))
        alone = Noisy(device)
        alone(torch.zeros(1, 1, dtype=torch.long, device=device))
        expected += alone.masks
    for place, got, wanted in zip(PLACES, seen, expected, strict=True):
        assert got == wanted, f"(epoch, step, micro-batch) {place} of rank {rank} has the mask {got}; expected {wanted}"


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


@given(before=st.integers(0, 1000))
def falsify_nothing_is_seeded_without_a_seed(subject: Any, device: str, before: int) -> None:
    torch.manual_seed(before)
    seen, after = masks(subject, device, seed=None), torch.rand(1, device=device).item()
    torch.manual_seed(before)
    module = Noisy(device)
    for _ in PLACES:
        module(torch.zeros(1, 1, dtype=torch.long, device=device))
    assert seen == module.masks, f"without a seed the masks are {seen}; the stream of the process gives {module.masks}"
    expected = torch.rand(1, device=device).item()
    assert after == expected, f"after the run the process draws {after}; expected {expected}"
