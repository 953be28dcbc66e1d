"""Attacks on updates: clipping, decay, unused parameters, masters in float32, and the random numbers of a run.

The random numbers are observed by dropout masks, as texts of ones and zeros.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.real_run import SETTINGS, after_steps, module_student, parts, recording_callbacks, run, tables
from falsifiers.support.assertions import assert_equal
from falsifiers.support.documents import nats
from falsifiers.support.steps import embedding
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.plan.schedule import Schedule
from reference_trainer.ranks.parallel import OneProcess
from reference_trainer.training.loop import Objective, train
from reference_trainer.training.state import UpdateOptions


def apply_dropout(device: torch.device | str, *, training: bool = True) -> Tensor:
    """Return 48 ones after dropout, so that two independent masks are practically never equal."""
    return F.dropout(torch.ones(48, device=device), training=training)


def mask_text(mask: Tensor) -> str:
    """Return a mask as ones and zeros."""
    return "".join("1" if value else "0" for value in mask.tolist())


class Noisy(nn.Module):
    """A table of logits with dropout; `masks` has the mask of each forward in train mode, as ones and zeros."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64, device=device))
        self.masks: list[str] = []

    def forward(self, tokens: Tensor) -> Tensor:
        mask = apply_dropout(self.table.device, training=self.training)
        self.masks.append(mask_text(mask))
        logits: Tensor = self.table[tokens] * mask[0]
        return logits


def masks(
    subject: Any,
    device: str,
    *,
    seed: int | None,
    rank: int = 0,
    callbacks: Sequence[Any] = (),
    module: Any = None,
    data: list[str] | None = None,
) -> list[str]:
    """Return the masks of the micro-batches of a run: two epochs of a full and a partial window.

    data: a list to which loading a micro-batch adds a mask; by default, loading draws no random numbers.
    """
    module = module or Noisy(device)
    tokens, parallel = torch.tensor([[0, 1]], device=device), OneProcess()
    parallel.rank = rank

    def batch(epoch: int, number: int) -> Batch:
        if data is not None:
            data.append(mask_text(apply_dropout(device)))
        return Batch(tokens=tokens, labels=tokens)

    subject.train(
        tables(torch.eye(2, dtype=torch.float64, device=device), torch.eye(2, dtype=torch.float64))[0],
        ModuleStudent(module, 2),
        batch,
        torch.optim.SGD(module.parameters(), lr=0.1),
        schedule=Schedule(epochs=2, steps_per_epoch=2, accumulation=2, micro_batches=3, log_every=1),
        objective=subject.Objective(**SETTINGS),
        learning_rate=lambda step: 0.1,
        callbacks=callbacks,
        parallel=parallel,
        options=UpdateOptions(seed=seed),
    )
    return list(module.masks)


class UsedOnce(nn.Module):
    """A model with the sum of the rows of two tables as logits; the second table is used in the first forward only."""

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
    callbacks, weights = after_steps(lambda context: module.second.weight.detach().clone())
    needed = parts(device) | {"teacher": tables(logits.to(device), logits)[0], "student": module_student(module)}
    needed |= {"batch_at": lambda *at: Batch(tokens=tokens, labels=tokens)}
    run(subject, script, callbacks, needed | {"optimizer": subject.new_optimizer(module.parameters(), 0.5)})
    for step, weight in enumerate(weights[1:], start=2):
        case = f"a parameter that step {step} does not use is {weight.tolist()}; expected {weights[0].tolist()}"
        assert torch.equal(weight, weights[0]), case


RATE, DECAY = 0.5, 0.01


class OwnNorm(nn.Module):
    """A norm whose class is not one of PyTorch, as models of transformers have it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))


class OwnAdamW(torch.optim.AdamW):
    """A subclass of AdamW, whose default weight decay is 0.01."""


@given(tied=st.booleans(), frozen=st.booleans(), derived=st.booleans(), data=st.data())
def falsify_norms_biases_and_embeddings_keep_their_size(
    subject: Any, device: str, tied: bool, frozen: bool, derived: bool, data: st.DataObject
) -> None:
    modules = {"embedding": nn.Embedding(5, 4), "norm": nn.LayerNorm((2, 4)), "root": nn.RMSNorm(4), "own": OwnNorm(4)}
    modules |= {"linear": nn.Linear(4, 3), "convolution": nn.Conv1d(4, 3, 2), "head": nn.Linear(4, 5, bias=False)}
    layers, decaying = nn.ModuleDict(modules), {"linear.weight", "convolution.weight"}
    if tied:
        layers["head"].weight = layers["embedding"].weight
    else:
        decaying.add("head.weight")
    layers = layers.to(device)
    layers["linear"].weight.requires_grad_(not frozen)
    names = {parameter: name for name, parameter in layers.named_parameters()}
    order = data.draw(st.permutations(list(names)))
    options = {"kind": OwnAdamW} if derived else {}
    optimizer = subject.new_optimizer(order, RATE, undecayed=subject.undecayed(layers), **options)
    updated = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    expected = sorted(set(names.values()) - ({"linear.weight"} if frozen else set()))
    assert_equal("parameters of the optimizer", sorted(updated), expected)
    before = {name: parameter.detach().clone() for parameter, name in names.items()}
    for weights in names:
        weights.grad = torch.zeros_like(weights)
    # With gradients of 0, decay alone changes a weight.
    optimizer.step()
    for weights, name in names.items():
        factor = 1 - RATE * DECAY if name in decaying and name in expected else 1.0
        old, new = before[name], weights.detach()
        is_equal = torch.equal(new, old) if factor == 1.0 else torch.allclose(new, old * factor, rtol=1e-6, atol=0)
        assert is_equal, f"{name} is {new.flatten()[:3]} after a step; expected {factor} times {old.flatten()[:3]}"


class Layered(nn.Module):
    """A model with layers in an `nn.ModuleList`, and with other lists and embeddings that are no layers."""

    def __init__(self, layers: int, tied: bool) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(3, 2), nn.LayerNorm(2), nn.Linear(2, 3, bias=False)
        # A layer has a longer list, of experts, than the list of layers.
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(2, 2) for _ in range(layers + 1)) for _ in range(layers))
        self.inner = nn.Sequential(self.layers)  # nested, like a decoder within a model
        # A shorter list that comes first, such as layers of a vision tower, and an embedding of the other class.
        if layers > 1:
            self.first = nn.ModuleList([nn.Linear(2, 2)])
            self._modules = {"first": self._modules.pop("first"), **self._modules}
        self.bag = nn.EmbeddingBag(3, 2)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        for layer in self.layers:
            for expert in layer.children():
                states = states + expert(states)
        logits: Tensor = self.head(self.norm(states))
        return logits

    def place(self, parameter: Tensor) -> int:
        """Return the number of layers below a parameter; the embedding counts as a layer."""
        if parameter is self.bag.weight:
            return 0
        for number, layer in enumerate([self.embedding, *self.layers]):
            if any(parameter is other for other in layer.parameters()):
                return number
        return len(self.layers) + 1


class RateRecorder(torch.optim.SGD):
    """Gradient descent that records the learning rate of each parameter in each step."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, lr=lr)
        self.rates: list[dict[Tensor, float]] = []

    def step(self, closure: Any = None) -> Any:
        self.rates.append({parameter: group["lr"] for group in self.param_groups for parameter in group["params"]})
        super().step()


@given(
    layers=st.integers(1, 4),
    tied=st.booleans(),
    decay=st.floats(0.1, 0.9),
    rates=st.lists(st.floats(0, 0.1), min_size=2, max_size=3),
)
def falsify_layers_have_their_rates(
    subject: Any, device: str, layers: int, tied: bool, decay: float, rates: list[float]
) -> None:
    module, tokens = Layered(layers, tied).to(device), torch.tensor([[0, 1, 2]], device=device)
    optimizer = subject.new_optimizer(
        module.parameters(), 0.5, kind=RateRecorder, scales=subject.layer_scales(module, decay)
    )
    train(
        tables(torch.eye(3, device=device), torch.eye(3))[0],
        module_student(module),
        lambda *at: Batch(tokens=tokens, labels=tokens),
        optimizer,
        schedule=Schedule(epochs=1, steps_per_epoch=len(rates)),
        objective=Objective(temperature=2.0, ce_weight=0.3, kd_weight=0.7),
        learning_rate=lambda step: rates[step - 1],
    )
    assert_equal("steps of the optimizer", len(optimizer.rates), len(rates))
    for step, (rate, actual) in enumerate(zip(rates, optimizer.rates, strict=True), start=1):
        for name, parameter in module.named_parameters():
            expected = rate * math.prod([decay] * (layers + 1 - module.place(parameter)))
            assert math.isclose(actual[parameter], expected, rel_tol=1e-12, abs_tol=0), (
                f"step {step}, {rate=}: {name} of {layers} layers has the rate {actual[parameter]}; expected {expected}"
            )


SEEDS = st.integers(0, 2**64)


DRAWING = ["on_before_forward", "on_after_backward", "on_step_end", "on_epoch_end"]
"""Hooks in which a callback may draw random numbers."""


@given(seed=SEEDS, before=st.integers(0, 1000), events=st.sets(st.sampled_from(DRAWING)))
@example(seed=0, before=0, events={"on_before_forward"})
def falsify_masks_depend_on_nothing_else(subject: Any, device: str, seed: int, before: int, events: set[str]) -> None:
    """Draw other random numbers before the run and in hooks; the masks of the run must stay the same."""
    expected = masks(subject, device, seed=seed)
    module = Noisy(device)

    def act(callback: int, event: str, context: Any) -> None:
        if event in events:
            torch.rand(context.step, device=device)
            module(torch.zeros(1, 1, dtype=torch.long, device=device))  # an evaluation that forgot eval mode
            module.masks.pop()

    torch.manual_seed(before)
    actual = masks(subject, device, seed=seed, callbacks=recording_callbacks(1, act), module=module)
    assert_equal(f"masks of {seed=}, with numbers drawn before the run and in {sorted(events)}", actual, expected)


@given(seed=SEEDS, other=SEEDS)
def falsify_masks_differ(subject: Any, device: str, seed: int, other: int) -> None:
    runs: dict[str, list[str]] = {}
    for name, s, rank in {(f"seed {s}, rank {r}", s, r) for s in (seed, other) for r in (0, 1)}:
        data = runs[f"data of {name}"] = []
        runs[name] = masks(subject, device, seed=s, rank=rank, data=data)
    first: dict[str, str] = {}
    for run_name, run_masks in runs.items():
        # Two epochs of three micro-batches.
        assert_equal(f"masks of {run_name}", len(run_masks), 6)
        for number, mask in enumerate(run_masks):
            name = f"{run_name}, micro-batch {number}"
            assert first.setdefault(mask, name) == name, f"{name} and {first[mask]} have the same mask {mask}"


def _generators() -> tuple[Any, ...]:
    """Return the states of the global generators of torch, Python and CUDA."""
    cuda = [torch.cuda.get_rng_state().tolist()] if torch.cuda.is_available() else []
    return torch.get_rng_state().tolist(), random.getstate(), cuda


@given(seed=SEEDS, raises=st.sampled_from([None, "on_train_begin", "on_step_end", "on_train_end"]))
@example(seed=1, raises="on_step_end")
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
    assert raised == (raises is not None), f"the caller saw an exception: {raised}; one was raised in {raises}"
    assert _generators() == before, f"states of generators differ after a run of {seed=} with an exception in {raises}"


VALUES = (0, 1, 2, 11, 12, 21, 111)
"""Numbers that are ambiguous when their digits are joined: (1, 11) and (11, 1) both give 111."""


def falsify_seeds_never_collide(subject: Any) -> None:
    first: dict[int, tuple[int, ...]] = {}
    for at in itertools.product(VALUES, repeat=5):
        run, epoch, step, micro_batch, rank = at
        seed = subject.micro_batch_seed(run, epoch=epoch, step=step, micro_batch=micro_batch, rank=rank)
        name = f"(seed, epoch, step, micro-batch, rank) {at}"
        digest = hashlib.sha256("/".join(map(str, at)).encode()).hexdigest()
        assert_equal(f"seed of {name}", seed, int(digest[:16], 16) // 2)  # the first 63 bits
        assert first.setdefault(seed, at) == at, f"{name} and {first[seed]} have the same seed {seed}"


class GpuGenerator:
    """A CPU generator that says it is on a GPU, so that no GPU is needed."""

    def __init__(self, index: int) -> None:
        self.device, self._own = torch.device("cuda", index), torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


@given(index=st.sampled_from([None, 0, 1]), current=st.integers(0, 1), seed=st.integers(0, 999), raises=st.booleans())
def falsify_generator_of_a_gpu_is_restored(
    subject: Any, index: int | None, current: int, seed: int, raises: bool
) -> None:
    """index: of the GPU in the name of the device, None for the name "cuda". current: index of the current GPU."""
    gpus, device = tuple(map(GpuGenerator, (0, 1))), torch.device("cuda" if index is None else f"cuda:{index}")
    generators: list[Any] = [torch.default_generator, *gpus]
    before = [generator.get_state() for generator in generators]
    used = current if index is None else index
    with (
        mock.patch.object(torch.cuda, "default_generators", gpus),
        mock.patch.object(torch.cuda, "current_device", lambda: current),
        suppress(KeyError),
        subject.preserve_generators(device),
    ):
        subject.seed_generators(seed, device)
        seeds = [gpu.initial_seed() == seed for gpu in gpus]
        for source in (torch.default_generator, gpus[used]):
            source.manual_seed(seed + 1)
        if raises:
            raise KeyError("on purpose")
    case = f"device {device}, current GPU {current}"
    assert_equal(f"{case}: whether GPU 0 and GPU 1 are seeded", seeds, [gpu == used for gpu in (0, 1)])
    after = [generator.get_state() for generator in generators]
    is_restored = [torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert_equal(f"{case}: whether the generators of CPU, GPU 0 and GPU 1 are restored", is_restored, [True] * 3)


TEACHER = ((2.0, 0.0, -1.0), (0.0, 3.0, 0.0), (1.0, -2.0, 0.0))
TOKENS = ((0, 1, 2), (2, 2, 0), (1, 0, 1), (0, 0, 2))
STEPS = 3
CLOSE = 1e-9
MARGIN = 1e-6  # clip_grad_norm_ of PyTorch multiplies the gradient by clip / (norm + 1e-6)


class BiasedTable(nn.Module):
    """A model with a row of a table plus a bias as logits; a third parameter is never used."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(TEACHER, dtype=torch.float64, device=device).flip(1))
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64, device=device))
        self.unused = nn.Parameter(torch.ones(1, dtype=torch.float64, device=device))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens] + self.bias


class RecordingOptimizer(torch.optim.SGD):
    """Optimizer that records the gradients and rates of its steps and changes nothing."""

    def __init__(self, module: BiasedTable) -> None:
        super().__init__([{"params": [module.table, module.unused]}, {"params": [module.bias]}], lr=99.0)
        self.gradients: list[list[Tensor]] = []
        self.rates: list[list[float]] = []

    def step(self, closure: Any = None) -> Any:
        self.rates.append([group["lr"] for group in self.param_groups])
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"]]
        self.gradients.append([gradient.clone() for gradient in gradients if gradient is not None])


def _batch(number: int, device: str) -> Batch:
    tokens = torch.tensor([TOKENS[number % len(TOKENS)]], device=device)
    return Batch(tokens=tokens, labels=tokens)


def _run(
    subject: Any, device: str, accumulation: int, clip: float | None, log_every: int
) -> tuple[RecordingOptimizer, list[float | None]]:
    """Return the optimizer of a run, and the `gradient_norm` in the metrics of each step, None if it is absent."""
    module = BiasedTable(device)
    callbacks, norms = after_steps(lambda context: context.metrics.get("gradient_norm"))
    optimizer, teacher = RecordingOptimizer(module), torch.tensor(TEACHER, dtype=torch.float64, device=device)
    subject.train(
        tables(teacher, teacher)[0],
        module_student(module),
        lambda epoch, k: _batch(k - 1, device),
        optimizer,
        schedule=Schedule(epochs=1, steps_per_epoch=STEPS, accumulation=accumulation, log_every=log_every),
        objective=subject.Objective(**SETTINGS),
        learning_rate=lambda step: 1 / (step + 1),
        callbacks=callbacks,
        options=UpdateOptions(clip=clip),
    )
    return optimizer, norms


def _oracle(step: int, accumulation: int) -> list[Tensor]:
    """Return the gradient of the mean textbook loss over the scored tokens of the window of a step, from 1."""
    module = BiasedTable("cpu")
    window = [_batch(number, "cpu").tokens for number in range((step - 1) * accumulation, step * accumulation)]
    count, loss = sum(tokens.numel() - 1 for tokens in window), torch.zeros((), dtype=torch.float64)
    for tokens in window:
        logits, teacher = module(tokens)[0, :-1], torch.tensor(TEACHER, dtype=torch.float64)[tokens[0, :-1]]
        loss = loss + nats(logits, teacher, tokens[0, 1:])
    return list(torch.autograd.grad(loss / count, [module.table, module.bias]))


def _norm(gradients: list[Tensor]) -> float:
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))


ACCUMULATIONS = st.integers(1, 3)
CLIPS = st.sampled_from([1e-3, 0.1, 0.3, 0.5, 1.0, 100.0])


@given(accumulation=ACCUMULATIONS, clip=CLIPS, log_every=st.sampled_from([0, 1, 2]))
def falsify_clipping(subject: Any, device: str, accumulation: int, clip: float, log_every: int) -> None:
    """Compare runs with and without clipping with the gradient of the mean textbook loss of each window."""
    unclipped_run, unclipped_norms = _run(subject, device, accumulation, None, log_every)
    clipped_run, clipped_norms = _run(subject, device, accumulation, clip, log_every)
    rates = [[1 / (step + 1)] * 2 for step in range(1, STEPS + 1)]
    assert_equal("learning rates of the groups in each step", clipped_run.rates, rates)
    gradients = zip(clipped_run.gradients, unclipped_run.gradients, strict=True)
    for step, (clipped, unclipped) in enumerate(gradients, start=1):
        expected = _oracle(step, accumulation)
        norm = _norm(expected)
        case = f"step {step} of {accumulation} micro-batches, norm {norm:.6g}, clip {clip}"
        _assert_close(f"{case}: the gradient without clipping", unclipped, expected)
        is_logged = bool(log_every) and step % log_every == 0
        for reported in (unclipped_norms[step - 1], clipped_norms[step - 1]):
            is_equal = reported is not None and math.isclose(reported, norm, rel_tol=CLOSE)
            assert is_equal if is_logged else reported is None, f"{case}, {log_every=}: gradient_norm is {reported}"
        if norm + MARGIN < clip:
            is_equal = all(map(torch.equal, clipped, unclipped))
            assert is_equal, f"{case}: the gradient is {clipped}; expected the one without clipping, {unclipped}"
        else:
            assert _norm(clipped) <= clip * (1 + CLOSE), f"{case}: the norm after clipping is {_norm(clipped)}"
            scaled = [gradient * clip / (norm + MARGIN) for gradient in expected]
            _assert_close(f"{case}: the clipped gradient", clipped, scaled)


def _assert_close(name: str, actual: list[Tensor], expected: list[Tensor]) -> None:
    assert len(actual) == len(expected), f"{name} has {len(actual)} tensors; expected {len(expected)}"
    for ours, wanted in zip(actual, expected, strict=True):
        assert torch.allclose(ours.cpu(), wanted, rtol=CLOSE, atol=CLOSE), f"{name} is {ours}; expected {wanted}"


MASTER_RATE, FIRST, SECOND, EPSILON = 1e-3, 0.9, 0.999, 1e-8
ALLOWED = 1e-5
"""Decay and update round a float32 weight near 1 by 6e-8 each, in each of 40 steps."""


def _adamw(weight: float, gradients: list[float], decay: float) -> float:
    """Return a weight after AdamW updates (arXiv:1711.05101, algorithm 2), in float64."""
    mean = square = 0.0
    for step, gradient in enumerate(gradients, 1):
        mean, square = FIRST * mean + (1 - FIRST) * gradient, SECOND * square + (1 - SECOND) * gradient**2
        direction = mean / (1 - FIRST**step) / (math.sqrt(square / (1 - SECOND**step)) + EPSILON)
        weight -= MASTER_RATE * decay * weight + MASTER_RATE * direction
    return weight


@given(
    weights=st.lists(st.sampled_from([-1.0, -0.5, 0.75, 1.0]), min_size=1, max_size=3),
    gradients=st.lists(st.sampled_from([0.0078125, 0.5, 2.0, -0.25]), min_size=8, max_size=40),
    decays=st.booleans(),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
)
def falsify_small_updates_are_not_lost(
    subject: Any, device: str, weights: list[float], gradients: list[float], decays: bool, dtype: torch.dtype
) -> None:
    """Take steps of at most a quarter of the spacing of bfloat16 near 1: without masters, every update is lost."""
    parameter = nn.Parameter(torch.tensor(weights, dtype=dtype, device=device))
    undecayed = frozenset() if decays else {parameter}
    optimizer = subject.new_optimizer([parameter], MASTER_RATE, undecayed=undecayed, masters=True)
    for gradient in gradients:
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    expected = [_adamw(weight, gradients, DECAY if decays else 0.0) for weight in weights]
    masters = optimizer.state[parameter]["master"].tolist()
    error = max(abs(master - value) for master, value in zip(masters, expected, strict=True))
    assert error <= ALLOWED, f"after {len(gradients)} steps the masters are {masters}; expected {expected}"
    rounded = torch.tensor(masters, dtype=torch.float32).to(dtype).tolist()
    assert_equal("weights of the model, compared with the rounded masters", parameter.tolist(), rounded)
