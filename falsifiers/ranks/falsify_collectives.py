"""Attacks on the number of collectives: averaging hides a reduction too many, so only a count shows it."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.ranks.group import FLAGS, Collectives
from falsifiers.support.ranks import run_ranks
from falsifiers.support.windows import UNEVEN, V, dealt

COUNTS = ("allreduce", torch.int64, 2 + len(FLAGS))


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
                seen = [each for each in collectives.seen if "reduce" in each[0]]
                results.append((strategy, len(case.split[rank]), seen))
        return results

    modules = 1 + len(window.layers)
    for rank, results in enumerate(run_ranks(ranks, work)):
        for strategy, micro_batches, seen in results:
            what = f"rank {rank} of {ranks} with {strategy}, a window of {micro_batches} micro-batches: {seen}"
            assert seen.count(COUNTS) == 1, f"{what}; expected a reduction of the counts"
            assert len(seen) == modules + 1, f"{what}; expected a reduction of each of {modules} modules' gradients"
