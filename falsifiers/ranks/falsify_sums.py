"""Attacks on what ranks share: sums, collectives, gradients and shards."""

import copy
import os
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.ranks.group import FLAGS, Collectives, windows
from falsifiers.support import oracles
from falsifiers.support.ranks import run_ranks
from falsifiers.support.windows import UNEVEN, V, assert_gradients, dealt, hard_windows, models

COUNTS = st.lists(st.integers(0, 2**60), min_size=1, max_size=3)
SUMS = st.lists(st.integers(-(2**50), 2**50).map(float), min_size=1, max_size=3)
GROUPS = st.sampled_from([(2, ((0, 1),)), (3, ((0, 1, 2),)), (3, ((0, 2), (1,)))])


@given(counts=COUNTS, sums=SUMS, groups=GROUPS)
def falsify_sums_are_exact(
    subject: Any, counts: list[int], sums: list[float], groups: tuple[int, tuple[tuple[int, ...], ...]]
) -> None:
    ranks, members = groups

    def work(rank: int) -> Any:
        made = [dist.new_group(list(each)) for each in members]
        mine = next(n for n, each in enumerate(members) if rank in each)
        with mock.patch.dict(os.environ, {"LOCAL_RANK": str(rank + 5)}):
            parallel = subject.DataParallel(DistributedDataParallel(nn.Linear(1, 1), process_group=made[mine]))
        given_K = torch.tensor(counts) + rank, torch.tensor(sums, dtype=torch.float64) + rank
        kept = [each.clone() for each in given_K]
        summed = parallel.sum_counts(given_K[0]), parallel.sum_metrics(given_K[1])
        unchanged = all(torch.equal(a, b) for a, b in zip(given_K, kept, strict=True))
        described = parallel.rank, parallel.local_rank, parallel.world_size, parallel.gradient_factor
        return described, *summed, unchanged

    for rank, (described, count_sums, metric_sums, unchanged) in enumerate(run_ranks(ranks, work)):
        group = next(each for each in members if rank in each)
        place = (group.index(rank), rank + 5, len(group), float(len(group)))
        assert described == place and type(described[3]) is float, f"described as {described}, not {place}"
        wanted_counts = [sum(count + other for other in group) for count in counts]
        wanted_sums = [sum(each + other for other in group) for each in sums]
        assert (count_sums.dtype, count_sums.tolist()) == (torch.int64, wanted_counts), (
            f"rank {rank} of {group}: the sums are {count_sums}; expected {wanted_counts}, int64"
        )
        assert (metric_sums.dtype, metric_sums.tolist()) == (torch.float64, wanted_sums), (
            f"rank {rank} of {group}: the sums are {metric_sums}; expected {wanted_sums}, float64"
        )
        assert unchanged, f"rank {rank}: the arguments were overwritten by the sums"


REDUCTION_OF_COUNTS = ("allreduce", torch.int64, 2 + len(FLAGS))


MATCHED = feature_windows().filter(lambda window: window.projection is not None)


@given(window=MATCHED, ranks=st.sampled_from([2, 3]))
def falsify_every_module_reduces_once_in_a_window(subject: Any, window: FeatureWindow, ranks: int) -> None:
    cases = [window.case.but(samples=UNEVEN, split=dealt(len(UNEVEN), ranks, m)) for m in (1, 2, 4)]

    def work(rank: int) -> list[Any]:
        results = list[Any]()
        for strategy in ("ddp", "fsdp2"):
            module = subject.wrap_student(window.student(), strategy, torch.device("cpu"), lambda student: student)
            features, parallel = subject.wrap_projections(module, window.matching())
            student, given = subject.ModuleStudent(module, V), {"parallel": parallel, "features": features}
            for case in cases:
                weights = window.but(case=case).weights
                with Collectives() as collectives:
                    subject.kd_window(window.teacher(), student, case.batches(rank), weights, flags=FLAGS, **given)
                seen = [each for each in collectives.seen if "reduce" in each[0]]
                results.append((strategy, len(case.split[rank]), seen))
        return results

    modules = 1 + len(window.layers)
    for rank, results in enumerate(run_ranks(ranks, work)):
        for strategy, micro_batches, seen in results:
            what = f"rank {rank} of {ranks} with {strategy}, a window of {micro_batches} micro-batches: {seen}"
            assert seen.count(REDUCTION_OF_COUNTS) == 1, f"{what}; expected a reduction of the counts"
            assert len(seen) == modules + 1, f"{what}; expected a reduction of each of {modules} modules' gradients"


RANKS = st.sampled_from([2, 3])


@given(model=models(), ranks=RANKS, dtype=st.sampled_from([torch.float64, torch.float32]))
def falsify_any_split_over_ranks_gives_the_gradient_of_the_whole(
    subject: Any, model: dict[str, Any], ranks: int, dtype: torch.dtype
) -> None:
    cases = hard_windows(model, ranks)
    for rank, results in enumerate(run_ranks(ranks, windows(subject, cases, dtype))):
        for case, seen in zip(cases, results, strict=True):
            what = f"rank {rank} of {ranks}, sequences by rank and micro-batch {case.split}"
            assert_gradients(what, seen.gradients, case.gradient(), case.allowed(dtype))
            own = sum(case.count(n) for micro_batch in case.split[rank] for n in micro_batch)
            counts, expected = (seen.count, seen.total, seen.sequences), (own, case.count(), case.sequences())
            assert counts == expected, f"{what}: own tokens, tokens, sequences are {counts}; expected {expected}"
            for name, nats in case.nats().items() if dtype is torch.float64 else ():
                oracles.assert_close(f"{what}: {name}", seen.sums[name], nats, case.allowed_nats(), "nats of all ranks")


WIDTH, TOKENS = 2, 3
HALVES = st.integers(-2, 2).map(lambda n: n / 2)
"""Sums and products of a few of them are exact in float32."""


class Layered(nn.Module):
    """An embedding and a list of layers, one of which has no parameters."""

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
    batches = [torch.tensor([[(r + m) % TOKENS for m in range(2)]]) for r in range(6)]
    micro_batches = [list(zip(batches[r::ranks], factors[r::ranks], strict=True)) for r in range(ranks)]

    def work(rank: int) -> Any:
        module = subject.shard(Layered(weights, dtype), torch.device("cpu"))
        places = []
        for named in ({"LOCAL_RANK": str(rank + 5)}, {}):
            with mock.patch.dict(os.environ, named, clear=True):
                parallel = subject.ShardedParallel(module)
                places.append((parallel.rank, parallel.local_rank, parallel.world_size))
        with torch.no_grad(), Collectives() as collectives:
            module(batches[0])
        divided = [isinstance(parameter, DTensor) for parameter in module.parameters()]
        for k, (tokens, factor) in enumerate(micro_batches[rank], start=1):
            with parallel.micro_batch(last=k == len(micro_batches[rank])):
                (module(tokens).sum() * factor).backward()
        gradients = [parameter.grad.full_tensor() for parameter in module.parameters()]
        return places, [seen[0] for seen in collectives.seen], divided, gradients

    # In a rank: autograd refuses to run in a fork of a process that has used it where there is a GPU.
    (expected,) = run_ranks(1, lambda rank: _gradients(Layered(weights, torch.float64), batches, factors))
    for rank, (places, gathers, divided, gradients) in enumerate(run_ranks(ranks, work)):
        what = f"rank {rank} of {ranks} in {dtype}"
        wanted = [(rank, rank + 5, ranks), (rank, rank, ranks)]
        assert places == wanted, f"{what}: rank, local_rank and world_size are {places}; expected {wanted}"
        assert len(gathers) == 3, f"{what}: an evaluation has the collectives {gathers}; expected 3 gathers"
        assert all(divided), f"{what}: after an evaluation, {divided.count(False)} parameters are not divided"
        for seen, each in zip(gradients, expected, strict=True):
            assert torch.equal(seen.double(), each), f"{what}: a gradient is {seen.tolist()}; expected {each.tolist()}"


def _gradients(module: nn.Module, batches: list[Tensor], factors: list[int]) -> list[Tensor]:
    """Return the gradients of the sum over all micro-batches, by autograd on the undivided module, float64."""
    whole = copy.deepcopy(module)
    losses = [whole(tokens).sum() * factor for tokens, factor in zip(batches, factors, strict=True)]
    torch.stack(losses).sum().backward()
    return [parameter.grad for parameter in whole.parameters() if parameter.grad is not None]
