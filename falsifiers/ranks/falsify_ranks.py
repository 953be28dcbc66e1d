"""Attacks on gradients and sums over ranks, on shards, and on `warm_up`, the first backward pass of the ranks."""

import os
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.support import oracles
from falsifiers.support.assertions import assert_equal
from falsifiers.support.ranks import run_ranks
from falsifiers.support.steps import UNEVEN, V, WindowCase, assert_gradients, dealt, gradients_of, hard_windows, models
from reference_trainer.errors import SettingError

FLAGS = (False, True, False)
"""Flags of a rank, which are reduced together with the counts of a window."""


class WindowResult(NamedTuple):
    """Results of a rank after a window: gradients, its tokens, tokens and sequences of all ranks, sums of all ranks."""

    gradients: dict[str, Tensor | None]
    count: int
    total: int
    sequences: int
    sums: dict[str, float]


class Collectives(TorchDispatchMode):
    """Record each collective operation as (name, dtype, number of elements), also in backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, torch.dtype, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "c10d":
            tensors = list(_tensors(args))
            dtype = tensors[0].dtype if tensors else torch.uint8
            name = str(function).split(".")[1].rstrip("_")
            self.calls.append((name, dtype, sum(tensor.numel() for tensor in tensors)))
        return function(*args, **(kwargs or {}))


def _tensors(arguments: Any) -> Iterator[Tensor]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _tensors(argument)


class Worker:
    """One rank: teacher, student, and the module that averages gradients over the ranks."""

    def __init__(self, subject: Any, case: WindowCase, rank: int, dtype: torch.dtype = torch.float64) -> None:
        self.subject, self.rank = subject, rank
        self.module = DistributedDataParallel(case.model(dtype=dtype))
        self.parallel = subject.DataParallel(self.module)
        self.teacher = subject.FixtureTeacher(case.teacher.to(dtype))
        self.student = subject.ModuleStudent(self.module, V)

    def run_window(self, case: WindowCase) -> WindowResult:
        """Remove old gradients, run a window, and return its results on this rank."""
        self.module.zero_grad(set_to_none=True)
        batches, settings = case.batches(self.rank), {"parallel": self.parallel, "metrics": True, "flags": FLAGS}
        window = self.subject.kd_window(self.teacher, self.student, batches, case.weights, **settings)
        sums = self.parallel.sum_metrics(torch.stack(list(window.sums.values())))
        counts = int(window.count), int(window.total), int(window.sequences)
        return WindowResult(gradients_of(self.module), *counts, dict(zip(window.sums, sums.tolist(), strict=True)))


def windows(
    subject: Any, cases: Sequence[WindowCase], dtype: torch.dtype = torch.float64
) -> Callable[[int], list[WindowResult]]:
    """Return the work of a rank: to run these windows in turn, all with the models of the first one."""

    def work(rank: int) -> list[WindowResult]:
        worker = Worker(subject, cases[0], rank, dtype)
        return [worker.run_window(case) for case in cases]

    return work


COUNTS = st.lists(st.integers(0, 2**60), min_size=1, max_size=3)
SUMS = st.lists(st.integers(-(2**50), 2**50).map(float), min_size=1, max_size=3)
GROUPS = st.sampled_from([(2, ((0, 1),)), (3, ((0, 1, 2),)), (3, ((0, 2), (1,)))])


@given(counts=COUNTS, sums=SUMS, groups=GROUPS)
def falsify_sums_are_exact(
    subject: Any, counts: list[int], sums: list[float], groups: tuple[int, tuple[tuple[int, ...], ...]]
) -> None:
    """groups: the number of ranks, and the ranks of each process group. Every rank adds its number to the arguments."""
    ranks, members = groups

    def work(rank: int) -> Any:
        process_groups = [dist.new_group(list(member)) for member in members]
        number = next(n for n, member in enumerate(members) if rank in member)
        with mock.patch.dict(os.environ, {"LOCAL_RANK": str(rank + 5)}):
            module = DistributedDataParallel(nn.Linear(1, 1), process_group=process_groups[number])
            parallel = subject.DataParallel(module)
        arguments = torch.tensor(counts) + rank, torch.tensor(sums, dtype=torch.float64) + rank
        copies = [tensor.clone() for tensor in arguments]
        summed = parallel.sum_counts(arguments[0]), parallel.sum_metrics(arguments[1])
        is_unchanged = all(map(torch.equal, arguments, copies))
        place = parallel.rank, parallel.local_rank, parallel.world_size, parallel.gradient_factor
        return place, *summed, is_unchanged

    for rank, (place, count_sums, metric_sums, is_unchanged) in enumerate(run_ranks(ranks, work)):
        group = next(member for member in members if rank in member)
        expected = (group.index(rank), rank + 5, len(group), float(len(group)))
        assert_equal("rank, local_rank, world_size and gradient_factor", place, expected)
        assert type(place[3]) is float, f"gradient_factor is {place[3]!r}; expected a float"
        for actual, numbers, dtype in ((count_sums, counts, torch.int64), (metric_sums, sums, torch.float64)):
            wanted = [sum(number + member for member in group) for number in numbers]
            assert_equal(f"rank {rank} of {group}: sums", (actual.dtype, actual.tolist()), (dtype, wanted))
        assert_equal(f"rank {rank}: whether the arguments are unchanged", is_unchanged, True)


REDUCTION_OF_COUNTS = ("allreduce", torch.int64, 2 + len(FLAGS))  # two counts: tokens and sequences
WITH_PROJECTION = feature_windows().filter(lambda window: window.projection is not None)


@given(window=WITH_PROJECTION, ranks=st.sampled_from([2, 3]))
def falsify_every_module_reduces_once_in_a_window(subject: Any, window: FeatureWindow, ranks: int) -> None:
    """Run windows of different numbers of micro-batches; only the last micro-batch may reduce gradients."""
    cases = [window.case.but(samples=UNEVEN, split=dealt(len(UNEVEN), ranks, m)) for m in (1, 2, 4)]

    def work(rank: int) -> list[Any]:
        results = list[Any]()
        for strategy in ("ddp", "fsdp2"):
            module = subject.wrap_student(window.student(), strategy, torch.device("cpu"), lambda student: student)
            features, parallel = subject.wrap_projections(module, window.matching())
            student, options = subject.ModuleStudent(module, V), {"parallel": parallel, "features": features}
            for case in cases:
                weights = window.but(case=case).weights
                with Collectives() as collectives:
                    subject.kd_window(window.teacher(), student, case.batches(rank), weights, flags=FLAGS, **options)
                reductions = [call for call in collectives.calls if "reduce" in call[0]]
                results.append((strategy, len(case.split[rank]), reductions))
        return results

    modules = 1 + len(window.layers)
    for rank, results in enumerate(run_ranks(ranks, work)):
        for strategy, micro_batches, reductions in results:
            case = f"rank {rank} of {ranks} with {strategy}, a window of {micro_batches} micro-batches: {reductions}"
            assert reductions.count(REDUCTION_OF_COUNTS) == 1, f"{case}; expected one {REDUCTION_OF_COUNTS}"
            assert len(reductions) == modules + 1, f"{case}; expected {modules} reductions of gradients beside it"


RANKS = st.sampled_from([2, 3])


@given(model=models(), ranks=RANKS, dtype=st.sampled_from([torch.float64, torch.float32]))
def falsify_any_split_over_ranks_gives_the_gradient_of_the_whole(
    subject: Any, model: dict[str, Any], ranks: int, dtype: torch.dtype
) -> None:
    cases = hard_windows(model, ranks)
    for rank, results in enumerate(run_ranks(ranks, windows(subject, cases, dtype))):
        for case, result in zip(cases, results, strict=True):
            label = f"rank {rank} of {ranks}, sequences by rank and micro-batch {case.split}"
            assert_gradients(label, result.gradients, case.gradient(), case.allowed(dtype))
            tokens = sum(case.count(n) for micro_batch in case.split[rank] for n in micro_batch)
            counts = result.count, result.total, result.sequences
            expected = tokens, case.count(), case.sequences()
            assert_equal(f"{label}: tokens of this rank, tokens and sequences of all ranks", counts, expected)
            for name, nats in case.nats().items() if dtype is torch.float64 else ():
                allowed = case.allowed_nats()
                oracles.assert_close(f"{label}: {name}", result.sums[name], nats, allowed, "nats of all ranks")


WIDTH, TOKENS = 2, 3
HALVES = st.integers(-2, 2).map(lambda n: n / 2)
"""Multiples of 1/2. Sums and products of a few such numbers are exact in float32."""


class Layered(nn.Module):
    """An embedding and a list of layers, including one without parameters."""

    def __init__(self, weights: list[float], dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH, dtype=dtype)
        linear = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype) for _ in range(2)]
        self.layers = nn.ModuleList([linear[0], nn.Identity(), linear[1]])
        values = torch.tensor(weights, dtype=dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(values[: parameter.numel()].view_as(parameter))

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.embedding(tokens)
        for layer in self.layers:
            states = layer(states)
        return states


@given(
    weights=st.lists(HALVES, min_size=TOKENS * WIDTH, max_size=TOKENS * WIDTH),
    factors=st.lists(st.integers(-2, 2), min_size=6, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    ranks=st.sampled_from([2, 3]),
)
def falsify_shards_are_gathered_layer_by_layer(
    subject: Any, weights: list[float], factors: list[int], dtype: torch.dtype, ranks: int
) -> None:
    """Gather the weights of an evaluation layer by layer, and compare gradients with the undivided module.

    factors: the factor of the loss of each micro-batch.
    """
    batches = [torch.tensor([[(r + m) % TOKENS for m in range(2)]]) for r in range(6)]
    micro_batches = [list(zip(batches[r::ranks], factors[r::ranks], strict=True)) for r in range(ranks)]

    def work(rank: int) -> Any:
        module = subject.shard(Layered(weights, dtype), torch.device("cpu"))
        places = []
        for variables in ({"LOCAL_RANK": str(rank + 5)}, {}):
            with mock.patch.dict(os.environ, variables, clear=True):
                parallel = subject.ShardedParallel(module)
                places.append((parallel.rank, parallel.local_rank, parallel.world_size))
        with torch.no_grad(), Collectives() as collectives:
            module(batches[0])
        divided = [isinstance(parameter, DTensor) for parameter in module.parameters()]
        for k, (tokens, factor) in enumerate(micro_batches[rank], start=1):
            with parallel.micro_batch(last=k == len(micro_batches[rank])):
                (module(tokens).sum() * factor).backward()
        gradients = [parameter.grad.full_tensor() for parameter in module.parameters()]
        return places, [name for name, *_ in collectives.calls], divided, gradients

    # In a child process: after autograd has run on a machine with a GPU, it refuses to run in a fork.
    (expected,) = run_ranks(1, lambda rank: _gradients(Layered(weights, torch.float64), batches, factors))
    for rank, (places, gathers, divided, gradients) in enumerate(run_ranks(ranks, work)):
        case = f"rank {rank} of {ranks} in {dtype}"
        wanted = [(rank, rank + 5, ranks), (rank, rank, ranks)]
        assert_equal(f"{case}: rank, local_rank and world_size, with LOCAL_RANK and without", places, wanted)
        assert len(gathers) == 3, f"{case}: an evaluation has the collectives {gathers}; expected 3 gathers"
        assert_equal(f"{case}: whether each parameter is divided after it", divided, [True] * len(divided))
        actual = [gradient.double().tolist() for gradient in gradients]
        assert_equal(f"{case}: gradients", actual, [gradient.tolist() for gradient in expected])


def _gradients(module: nn.Module, batches: list[Tensor], factors: list[int]) -> list[Tensor]:
    """Return the gradients of the sum over all micro-batches, by autograd on the undivided module."""
    losses = [module(tokens).sum() * factor for tokens, factor in zip(batches, factors, strict=True)]
    torch.stack(losses).sum().backward()
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


class Changing(nn.Module):
    """A module whose forward changes statistics and buffers of several dtypes, and draws random numbers."""

    def __init__(self, *, returns_object: bool) -> None:
        super().__init__()
        self.embedding, self.norm, self.drop = nn.Embedding(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.returns_object = returns_object
        self.register_buffer("read_tokens", torch.zeros(4, dtype=torch.bool))
        self.register_buffer("calls", torch.zeros((), dtype=torch.uint8), persistent=False)

    def forward(self, tokens_BT: Tensor) -> Any:
        self.read_tokens[tokens_BT.flatten()] = True
        self.calls += 1
        features_NW = self.embedding(tokens_BT).flatten(0, 1)
        logits_NW = self.drop(self.norm(features_NW))
        return SimpleNamespace(logits=logits_NW) if self.returns_object else logits_NW


@given(returns_object=st.booleans(), training=st.sampled_from([True, False]), seed=st.integers(0, 3))
def falsify_warm_up_changes_nothing(subject: Any, returns_object: bool, training: bool, seed: int) -> None:
    """returns_object: whether the forward returns an object with logits."""

    def work(rank: int) -> list[str]:
        torch.manual_seed(seed)
        module = DistributedDataParallel(Changing(returns_object=returns_object)).train(training)
        before, state = _tensors_of(module), torch.get_rng_state()
        subject.warm_up(module, torch.zeros(1, 2, dtype=torch.int64))
        changed = [name for name, value in _tensors_of(module).items() if not torch.equal(value, before[name])]
        changed += [f"gradient of {name}" for name, p in module.named_parameters() if p.grad is not None]
        changed += [] if torch.equal(torch.get_rng_state(), state) else ["random numbers"]
        return changed + [f"mode of {name}" for name, m in module.named_modules() if m.training is not training]

    assert_equal("what the first backward pass changed on both ranks", run_ranks(2, work), [[], []])


@given(frozen=st.booleans())
def falsify_unused_parameters_are_refused(subject: Any, frozen: bool) -> None:
    """Add a layer that the forward does not use; frozen: it needs no gradient."""

    def work(rank: int) -> str:
        inner = Changing(returns_object=False)
        inner.other_head = nn.Linear(3, 3).requires_grad_(not frozen)
        try:
            subject.warm_up(DistributedDataParallel(inner), torch.zeros(1, 2, dtype=torch.int64))
        except SettingError as error:
            return str(error)
        return ""

    for rank, message in enumerate(run_ranks(2, work)):
        expected = "no error" if frozen else "a SettingError that names other_head.weight alone"
        is_expected = not message if frozen else "other_head.weight" in message and "embedding" not in message
        assert is_expected, f"an unused parameter, {frozen=}: rank {rank} has {message!r}; expected {expected}"


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
