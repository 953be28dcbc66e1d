"""Attacks on the number of collectives: averaging hides a reduction too many, so only a count shows it."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.ranks.group import FLAGS, Collectives, Worker
from falsifiers.support.ranks import run_ranks
from falsifiers.support.windows import UNEVEN, V, WindowCase, assert_gradients, dealt, gradients_of, models

COUNTS = ("allreduce", torch.int64, 2 + len(FLAGS))


@given(model=models(), ranks=st.sampled_from([2, 3]))
def falsify_collectives_of_a_window(subject: Any, model: dict[str, Any], ranks: int) -> None:
    cases = [WindowCase(UNEVEN, dealt(len(UNEVEN), ranks, m), 0, True, **model) for m in (1, 2, 4)]

    def work(rank: int) -> list[Any]:
        worker, results = Worker(subject, cases[0], rank), list[Any]()
        for case in (*cases[:2], *cases):  # DDP rebuilds its buckets before the second window
            subject.evaluate(worker.teacher, worker.student, _Text(case, rank), case.weights)
            before = worker.module.switched_off
            with Collectives() as collectives:
                worker.window(case)
            switched = worker.module.switched_off - before
            results.append((collectives.seen, switched, gradients_of(worker.module)))
        return results[2:]

    numbers = sum(parameter.numel() for parameter in cases[0].model().parameters())
    expected = sorted([COUNTS, ("allreduce", torch.float64, numbers)], key=str)
    for rank, results in enumerate(run_ranks(ranks, work)):
        for case, (seen, switched, gradients) in zip(cases, results, strict=True):
            micro_batches = len(case.split[rank])
            what = f"rank {rank} of {ranks}, a window of {micro_batches} micro-batches after an evaluation"
            assert sorted(seen, key=str) == expected, f"{what}: the collectives are {seen}; expected {expected}"
            assert switched == micro_batches - 1, f"{what}: no_sync was entered {switched} times"
            assert_gradients(what, gradients, case.gradient(), case.allowed())


class _Text:
    """The sequences of a rank, as `evaluate` reads them."""

    def __init__(self, case: WindowCase, rank: int) -> None:
        self.given = case.batches(rank)
        self.batches = len(self.given)

    def __len__(self) -> int:
        return sum(len(batch.tokens) for batch in self.given)

    def batch(self, order: Any, position: int) -> Any:
        return self.given[position - 1]


@given(model=models(), ranks=st.sampled_from([2, 3]))
def falsify_collectives_of_a_sharded_window(subject: Any, model: dict[str, Any], ranks: int) -> None:
    cases = [WindowCase(UNEVEN, dealt(len(UNEVEN), ranks, m), 0, True, **model) for m in (1, 2, 4)]

    def work(rank: int) -> list[Any]:
        module = subject.shard(cases[0].model(), torch.device("cpu"))
        parallel, results = subject.ShardedParallel(module), list[Any]()
        teacher, student = subject.FixtureTeacher(cases[0].teacher), subject.ModuleStudent(module, V)
        for case in cases:
            module.zero_grad(set_to_none=True)
            subject.evaluate(teacher, student, _Text(case, rank), case.weights)
            with Collectives() as collectives:
                subject.kd_window(teacher, student, case.batches(rank), case.weights, parallel=parallel, flags=FLAGS)
            named = ((name, parameter.grad) for name, parameter in module.named_parameters())
            gradients = {name: None if grad is None else grad.full_tensor() for name, grad in named}
            results.append(([seen for seen in collectives.seen if "gather" not in seen[0]], gradients))
        return results

    for rank, results in enumerate(run_ranks(ranks, work)):
        for case, (seen, gradients) in zip(cases, results, strict=True):
            what = f"rank {rank} of {ranks} with shards, a window of {len(case.split[rank])} micro-batches"
            kinds = [(name, dtype) for name, dtype, _ in seen]
            assert len(kinds) == 2 and seen[0] == COUNTS and kinds[1][1] is torch.float64, (
                f"{what}: beside gathers, the collectives are {seen}; expected the counts, and the gradients once"
            )
            assert_gradients(what, gradients, case.gradient(), case.allowed())


MATCHED = feature_windows().filter(lambda window: window.projection is not None)


@given(window=MATCHED, ranks=st.sampled_from([2, 3]))
def falsify_every_module_reduces_once_in_a_window(subject: Any, window: FeatureWindow, ranks: int) -> None:
    cases = [window.case.but(samples=UNEVEN, split=dealt(len(UNEVEN), ranks, m)) for m in (1, 2, 4)]

    def work(rank: int) -> list[Any]:
        results = list[Any]()
        for strategy in ("ddp", "fsdp2"):
            module = subject.spread(window.student(), strategy, torch.device("cpu"), lambda student: student)
            features, parallel = subject.reduced(module, window.matching())
            student, given = subject.ModuleStudent(module, V), {"parallel": parallel, "features": features}
            for case in cases:
                weights = window.but(case=case).weights
                with Collectives() as collectives:
                    subject.kd_window(window.teacher(), student, case.batches(rank), weights, flags=FLAGS, **given)
                seen = [each for each in collectives.seen if "reduce" in each[0] and each != COUNTS]
                results.append((strategy, len(case.split[rank]), seen))
        return results

    modules = 1 + len(window.layers)
    for rank, results in enumerate(run_ranks(ranks, work)):
        for strategy, micro_batches, seen in results:
            assert len(seen) == modules, (
                f"rank {rank} of {ranks} with {strategy}, a window of {micro_batches} micro-batches: gradients of the "
                f"student and {modules - 1} projections are reduced {len(seen)} times, {seen}; expected {modules} times"
            )
