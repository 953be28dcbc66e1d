"""Attacks on an evaluation by several ranks. The subject is `reference_trainer.training.evaluation`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

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
from falsifiers.support.ranks import run_ranks
from reference_trainer.training.parallel import DataParallel


@given(
    tables=st.tuples(TABLE, TABLE),
    text=TEXTS,
    length=st.integers(2, 5),
    size=st.integers(1, 4),
    ranks=st.sampled_from([3, 2, 4]),
)
def falsify_ranks_share_an_evaluation(
    subject: Any, tables: tuple[Tensor, Tensor], text: Tensor, length: int, size: int, ranks: int
) -> None:
    sequences = sequences_of(text, length, size)

    def evaluated(rank: int) -> tuple[Any, int]:
        student = Student(tables[0])
        module = DistributedDataParallel(student)
        models, parallel = (Teacher(tables[1]), learner(module)), DataParallel(module)
        seen = subject.evaluate(*models, sequences, weights_at(), parallel=parallel)
        return seen, student.calls

    results = run_ranks(ranks, evaluated)
    what = f"{len(sequences)} sequences in batches of {size} on {ranks} ranks"
    forwards = [calls for _, calls in results]
    assert len({*forwards}) == 1, f"{what}: the ranks make {forwards} forwards; expected equally many"
    cases = cases_of(*tables, text, length, 2.0) if len(sequences) else {}
    for rank, (metrics, _) in enumerate(results):
        assert metrics or not cases, f"{what}: rank {rank} has no metrics"
        assert cases or metrics == {}, f"{what}: rank {rank} reports {metrics}"
        for name, case in cases.items():
            assert_is_the_oracles(f"{what}: {name} of rank {rank}", metrics[name], case)
