"""Attacks on the update of AdamW, its decay and its masks."""

import itertools
import random
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.real_run import after_steps, module_student, parts, recording_callbacks, run, tables
from falsifiers.optimizer_update.noise import Noisy, masks
from falsifiers.support.steps import embedding
from reference_trainer.distillation.protocols import Batch


class UsedOnce(nn.Module):
    """Logits that are the sum of two tables' rows, the second one's in the first forward only."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.first, self.second, self.forwards = embedding(logits), embedding(logits.flip(0)), 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.forwards += 1
        total: Tensor = self.first(tokens)
        return total + self.second(tokens) if self.forwards == 1 else total


@given(script=scripts(st.none(), fewest=1))
def falsify_parameters_without_gradient_are_unchanged(subject: Any, device: str, script: Script) -> None:
    logits = torch.arange(9.0, dtype=torch.float64).reshape(3, 3).cos()
    module, tokens = UsedOnce(logits).to(device), torch.tensor([[0, 1, 2]], device=device)
    callbacks, seen = after_steps(lambda context: module.second.weight.detach().clone())
    given = parts(device) | {"teacher": tables(logits.to(device), logits)[0], "student": module_student(module)}
    given |= {"batch_at": lambda *at: Batch(tokens=tokens, labels=tokens)}
    run(subject, script, callbacks, given | {"optimizer": subject.new_optimizer(module.parameters(), 0.5)})
    for step, now in enumerate(seen[1:], start=2):
        assert torch.equal(now, seen[0]), f"unused in step {step}, it was {seen[0].tolist()}, is {now.tolist()}"


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
        factor = 1 - RATE * DECAY if name in decaying and name in wanted else 1.0
        old, new = before[name], each.detach()
        same = torch.equal(new, old) if factor == 1.0 else torch.allclose(new, old * factor, rtol=1e-6, atol=0)
        assert same, f"{name}, {list(old.shape)}, went from {old.flatten()[:3]} to {new.flatten()[:3]}; x {factor}"


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


class GpuGenerator:
    """A generator of one of two GPUs, on a machine without one."""

    def __init__(self, index: int) -> None:
        self.device, self._own = torch.device("cuda", index), torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


@given(named=st.sampled_from([None, 0, 1]), current=st.integers(0, 1), seed=st.integers(0, 999), raises=st.booleans())
def falsify_generator_of_a_gpu_is_restored(
    subject: Any, named: int | None, current: int, seed: int, raises: bool
) -> None:
    """named: the index of the GPU in the name of the device; None is the current GPU."""
    gpus, device = (
        tuple(map(GpuGenerator, (0, 1))),
        torch.device("cuda") if named is None else torch.device("cuda", named),
    )
    generators: list[Any] = [torch.default_generator, *gpus]
    before = [each.get_state() for each in generators]
    used = current if named is None else named
    with (
        mock.patch.object(torch.cuda, "default_generators", gpus),
        mock.patch.object(torch.cuda, "current_device", lambda: current),
        suppress(KeyError),
        subject.own_generators(device),
    ):
        subject.seed_generators(seed, device)
        seeds = [each.initial_seed() == seed for each in gpus]
        for each in (torch.default_generator, gpus[used]):
            each.manual_seed(seed + 1)
        if raises:
            raise KeyError("on purpose")
    expected = [index == used for index in (0, 1)]
    assert seeds == expected, f"of {device}, GPU {current} being current, the generators seeded are {seeds}"
    after = [each.get_state() for each in generators]
    same = [torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert all(same), f"restored of CPU, GPU 0 and GPU 1 of {device}, GPU {current} being current: {same}"
