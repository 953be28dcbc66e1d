"""Attacks on what several ranks compute: the run of one process. The subject is `pipeline.distill`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.rank_runs.launched import STRATEGIES, Ended, assert_no_error, launched
from falsifiers.resume.runs import TIMEOUT_S
from falsifiers.support.histories import lines
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import SMALL
from reference_trainer import Settings

SAME = 1e-12
"""Relative, in float64: only the order of sums differs. AdamW amplifies it from step to step, by less than 100."""
UNEVEN = bytes(range(100)) * 2 + b"some text" * 3
"""Its last batch is short, and the batches are no multiple of the ranks."""


@given(
    ranks=st.sampled_from([2, 3]),
    strategy=STRATEGIES,
    accumulate=st.integers(1, 2),
    matched=st.sampled_from([True, False]),
)
@example(ranks=3, strategy="fsdp2", accumulate=2, matched=True)
def falsify_ranks_train_as_one_process(subject: Any, ranks: int, strategy: str, accumulate: int, matched: bool) -> None:
    with scratch() as directory:
        (directory / "text").write_bytes(UNEVEN)
        several = launched(subject.Distillation, _settings(directory, "several", accumulate, strategy, matched), ranks)
        alone = launched(subject.Distillation, _settings(directory, "alone", accumulate * ranks, strategy, matched), 1)
        where = f"{ranks} ranks with {strategy}, {accumulate} batches each a step"
        assert_no_error(where, [*several, *alone])
        _assert_same_steps(where, lines(directory, "several"), lines(directory, "alone"))
        for rank, each in enumerate(several):
            _assert_close(f"{where}, held-back text on rank {rank}", _flat(each), _flat(alone[0]), 100 * SAME)
            assert each.result["tokens"] == alone[0].result["tokens"], f"{where}, rank {rank}: {each.result['tokens']}"


def _settings(directory: Path, out: str, accumulate: int, strategy: str, matched: bool) -> Settings:
    given = {**SMALL, "data": directory / "text", "teacher_cache": directory / "cache", "dtype": "float64"}
    given |= {"out": directory / out, "log_every": 1, "rank_timeout": TIMEOUT_S, "warmup": 0, "lr": 0.001, "epochs": 2}
    given |= {"accumulate": accumulate, "strategy": strategy, "batch_size": 2, "save_every": 0, "length": 8}
    if matched:  # with projections to another width, whose gradients are clipped with those of the student
        given |= {"feature_weight": 0.5, "teacher_width": 32, "feature_distance": "l2", "clip": 0.5}
    return Settings(**given)


def _flat(ended: Ended) -> dict[str, float]:
    return {name: total / count for name, (total, count) in ended.result["held_back"].items()}


def _assert_same_steps(where: str, seen: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(seen) == len(expected), f"{where}: {len(seen)} steps; expected {len(expected)}"
    for step, (ours, theirs) in enumerate(zip(seen, expected, strict=True), start=1):
        allowed = SAME if step == 1 else 100 * SAME
        _assert_close(f"{where}, step {step}", ours["metrics"], theirs["metrics"], allowed)


def _assert_close(where: str, seen: dict[str, float], expected: dict[str, float], allowed: float) -> None:
    assert seen.keys() == expected.keys(), f"{where}: the metrics are {sorted(seen)}; expected {sorted(expected)}"
    for name, value in expected.items():
        assert math.isclose(seen[name], value, rel_tol=allowed, abs_tol=allowed), (
            f"{where}: {name} is {seen[name]!r}; one process has {value!r}"
        )
