"""Attacks on an evaluation by several ranks. The subject is `reference_trainer.training.evaluation`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier, BrokenBarrierError
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
from falsifiers.support.torch_modes import MODES

PATIENCE_S = 30.0
"""For a rank that waits for a reduction which the others do not call."""


class _Meeting:
    """Adds up the values of ranks that are threads. calls: the reductions so far."""

    def __init__(self, ranks: int) -> None:
        self.barrier, self.calls = Barrier(ranks, timeout=PATIENCE_S), 0
        self.given: list[tuple[str, Tensor]] = [("", torch.empty(0))] * ranks

    def sum(self, rank: int, what: str, values_K: Tensor) -> Tensor:
        self.given[rank] = what, values_K
        self.barrier.wait()
        seen = [(name, values.dtype, len(values)) for name, values in self.given]
        assert len({*seen}) == 1, f"the ranks reduce {seen} together"
        total_K = torch.stack([values for _, values in self.given]).sum(0)
        self.calls += rank == 0
        self.barrier.wait()
        return total_K


class _Rank:
    """One of the ranks of a meeting, with the reductions of `training.parallel.Parallel`."""

    def __init__(self, meeting: _Meeting, rank: int, world_size: int) -> None:
        self.meeting, self.rank, self.world_size = meeting, rank, world_size

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        assert counts_K.dtype is torch.int64, f"counts are reduced as {counts_K.dtype}; expected int64"
        return self.meeting.sum(self.rank, "counts", counts_K)

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        assert sums_K.dtype is torch.float64, f"sums are reduced as {sums_K.dtype}; expected float64"
        return self.meeting.sum(self.rank, "sums", sums_K)


def _together(meeting: _Meeting, work: Callable[[int], Any], ranks: int) -> list[Any]:
    """Return the results of ranks; raise what the first of them raised that did not only wait for another."""

    def carried_out(rank: int) -> tuple[Any, BaseException | None]:
        try:
            return work(rank), None
        except BaseException as error:
            meeting.barrier.abort()  # the others wait for this rank
            return None, error

    with ThreadPoolExecutor(ranks) as threads:
        ended = list(threads.map(carried_out, range(ranks)))
    errors = [error for _, error in ended if error is not None]
    for error in errors:
        if not isinstance(error, BrokenBarrierError):
            raise error
    assert not errors, f"of {ranks} ranks, {len(errors)} wait for a reduction that the others do not call"
    return [result for result, _ in ended]


@given(
    tables=st.tuples(TABLE, TABLE),
    text=TEXTS,
    length=st.integers(2, 5),
    size=st.integers(1, 4),
    ranks=st.sampled_from([3, 2, 4, 1]),
    mode=st.sampled_from(["", "default device meta"]),
)
def falsify_ranks_share_an_evaluation(
    subject: Any, tables: tuple[Tensor, Tensor], text: Tensor, length: int, size: int, ranks: int, mode: str
) -> None:
    """Every rank returns the oracle's sums and counts of all sequences, after as many forwards as the others.

    A rank without a batch passes one row. Without a sequence nothing is reduced.
    """
    meeting, sequences = _Meeting(ranks), sequences_of(text, length, size)
    students = [Student(tables[0]) for _ in range(ranks)]

    def evaluated(rank: int) -> Any:
        models = Teacher(tables[1]), learner(students[rank])
        with MODES[mode]("cpu") if mode else nullcontext():
            return subject.evaluate(*models, sequences, weights_at(), parallel=_Rank(meeting, rank, ranks))

    results = _together(meeting, evaluated, ranks)
    what = f"{len(sequences)} sequences in batches of {size} on {ranks} ranks"
    forwards = [student.calls for student in students]
    assert len({*forwards}) == 1, f"{what}: the ranks make {forwards} forwards; expected equally many"
    passed, needed = sum(student.rows for student in students), len(sequences) + sum(forwards) - sequences.batches
    assert passed == needed, f"{what}: {passed} rows are passed; expected {needed}, one by each rank without a batch"
    cases = cases_of(*tables, text, length, 2.0) if len(sequences) else {}
    assert cases or not meeting.calls, f"{what}: {meeting.calls} reductions; expected none"
    for rank, metrics in enumerate(results):
        assert metrics or not cases, f"{what}: rank {rank} has no metrics"
        assert cases or metrics == {}, f"{what}: rank {rank} reports {metrics}"
        for name, case in cases.items():
            assert_is_the_oracles(f"{what}: {name} of rank {rank}", metrics[name], case)
