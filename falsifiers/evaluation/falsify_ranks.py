"""Attacks on an evaluation by several ranks. The subject is `reference_trainer.training.evaluation`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.evaluation.cases import (
    TABLE,
    TEXTS,
    Student,
    Teacher,
    assert_is_the_oracles,
    cases_of,
    learner,
    sequences_of,
    weights_at,
)

PATIENCE_S = 30.0
"""For a rank that waits for a reduction which the others do not call."""


class _Meeting:
    """Adds up the values of ranks that are threads."""

    def __init__(self, ranks: int) -> None:
        self.barrier, self.values = Barrier(ranks, timeout=PATIENCE_S), [torch.empty(0)] * ranks

    def sum(self, rank: int, values_K: Tensor) -> Tensor:
        self.values[rank] = values_K
        self.barrier.wait()
        total_K = torch.stack(self.values).sum(0)
        self.barrier.wait()
        return total_K


class _Rank:
    """One of the ranks of a meeting, with the reductions of `training.parallel.Parallel`."""

    def __init__(self, meeting: _Meeting, rank: int, world_size: int) -> None:
        self.meeting, self.rank, self.world_size = meeting, rank, world_size

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        assert counts_K.dtype is torch.int64, f"counts are reduced as {counts_K.dtype}; expected int64"
        return self.meeting.sum(self.rank, counts_K)

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        assert sums_K.dtype is torch.float64, f"sums are reduced as {sums_K.dtype}; expected float64"
        return self.meeting.sum(self.rank, sums_K)


@given(
    tables=st.tuples(TABLE, TABLE),
    text=TEXTS,
    length=st.integers(2, 9),
    size=st.integers(1, 7),
    ranks=st.integers(1, 4),
)
def falsify_ranks_share_an_evaluation(
    subject: Any, tables: tuple[Tensor, Tensor], text: Tensor, length: int, size: int, ranks: int
) -> None:
    """Every rank returns the oracle's sums and counts of all sequences, after as many forwards as the others.

    A rank without a batch passes one row.
    """
    meeting, sequences = _Meeting(ranks), sequences_of(text, length, size)
    students = [Student(tables[0]) for _ in range(ranks)]

    def evaluated(rank: int) -> Any:
        models = Teacher(tables[1]), learner(students[rank])
        try:
            return subject.evaluate(*models, sequences, weights_at(), parallel=_Rank(meeting, rank, ranks))
        except BaseException:
            meeting.barrier.abort()  # the others wait for this rank
            raise

    with ThreadPoolExecutor(ranks) as threads:
        results = list(threads.map(evaluated, range(ranks)))
    what = f"{len(sequences)} sequences in batches of {size} on {ranks} ranks"
    forwards = [student.calls for student in students]
    assert len({*forwards}) == 1, f"{what}: the ranks make {forwards} forwards; expected equally many"
    passed, needed = sum(student.rows for student in students), len(sequences) + sum(forwards) - sequences.batches
    assert passed == needed, f"{what}: {passed} rows are passed; expected {needed}, one by each rank without a batch"
    cases = cases_of(*tables, text, length, 2.0) if len(sequences) else {}
    for rank, metrics in enumerate(results):
        assert metrics or not cases, f"{what}: rank {rank} has no metrics"
        assert cases or metrics == {}, f"{what}: rank {rank} reports {metrics}"
        for name, case in cases.items():
            assert_is_the_oracles(f"{what}: {name} of rank {rank}", metrics[name], case)
