"""Attacks on the evaluation on held-back text, by one rank and by several, and on its limit."""

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from falsifiers.evaluation.cases import (
    BATCH_SIZES,
    TABLE,
    TEXTS,
    VOCABULARY,
    Student,
    Teacher,
    assert_is_the_oracles,
    cases_of,
    entropy_and_shares,
    learner,
    sequences_of,
    weights_at,
)
from falsifiers.support import oracles
from falsifiers.support.fake_cuda import fake_cuda, moved
from falsifiers.support.ranks import run_ranks
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import run, small
from falsifiers.support.strategies import TEMPERATURES
from reference_trainer.distillation.providers import ModuleTeacher
from reference_trainer.ranks.parallel import DataParallel

NO_LOGITS = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64)
METRICS = sorted(
    ["agreement", "hard_loss", "kl_at_1", "kl_at_T", "soft_loss", "teacher_entropy", "teacher_loss", "token_accuracy"]
)


@given(student=TABLE, teacher=TABLE, text=TEXTS, length=st.integers(2, 6), temperature=TEMPERATURES)
def falsify_evaluation_does_not_depend_on_batch_size(
    subject: Any, device: str, student: Tensor, teacher: Tensor, text: Tensor, length: int, temperature: float
) -> None:
    text = torch.cat((text, text[:1].expand(max(0, length - len(text)))))
    for batch_size in BATCH_SIZES:
        sequences = sequences_of(text, length, batch_size, device)
        models = Teacher(teacher, device), learner(Student(student, device))
        seen = subject.evaluate(*models, sequences, weights_at(temperature))
        assert sorted(seen) == METRICS, f"metrics in batches of {batch_size} are {sorted(seen)}; expected {METRICS}"
        for name, value in entropy_and_shares(student, teacher, text, length).items():
            what, allowed = f"{name} in batches of {batch_size}", 1e-12 * len(text) * (name == "teacher_entropy")
            oracles.assert_close(what, seen[name].sum, value, allowed, "the sum over all scored tokens")
        for name, case in cases_of(student, teacher, text, length, temperature).items():
            assert_is_the_oracles(f"{name} in batches of {batch_size}", seen[name], case)


@given(
    text=TEXTS, flags=st.lists(st.booleans(), min_size=6, max_size=6), fails_at=st.integers(0, 3), whose=st.booleans()
)
def falsify_evaluation_does_not_change_student(
    subject: Any, device: str, text: Tensor, flags: list[bool], fails_at: int, whose: bool
) -> None:
    table = torch.zeros(VOCABULARY, VOCABULARY)
    student = Student(table, device, fails_at if whose else 0)
    teacher = Teacher(torch.full_like(table, torch.nan) if fails_at and not whose else table, device)
    for part, flag in zip(student.modules(), flags, strict=False):
        part.training = flag
    before = [part.training for part in student.modules()]
    failed, kept = "", list[Tensor]()
    try:
        with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
            subject.evaluate(teacher, learner(student), sequences_of(text, 2, 3, device), weights_at())
    except (RuntimeError, ValueError) as error:
        failed = f" after {error}"
    after = [part.training for part in student.modules()]
    assert after == before, f"training flags were {before} and are {after}{failed}"
    assert student.embedding.weight.grad is None and student.embedding.weight.requires_grad, "the student was changed"
    assert not kept, f"an evaluation kept {len(kept)} tensors for a backward pass"
    assert torch.is_grad_enabled(), f"gradients are disabled in the process{failed}"


@given(text=TEXTS, batch_size=st.sampled_from(BATCH_SIZES), teachers=st.sampled_from(["cpu", "cuda"]))
def falsify_evaluation_mixes_no_devices(subject: Any, text: Tensor, batch_size: int, teachers: str) -> None:
    table = torch.zeros(VOCABULARY, VOCABULARY)
    with fake_cuda():
        teacher = ModuleTeacher(moved(Student(table), teachers), VOCABULARY)
        student, sequences = moved(Student(table), "cuda"), sequences_of(text, 2, batch_size, "cuda")
        seen = subject.evaluate(teacher, learner(student), sequences, weights_at())
    assert sorted(seen) == METRICS, f"the student is on cuda, the teacher on {teachers}; the metrics are {sorted(seen)}"


LIMIT = 2**16
CASES = [(257, 257), (LIMIT + 1, 257), (LIMIT + 1, 256)]
"""Bytes held back, and lengths: a byte above the limit completes a sequence of 257, a byte below ends one of 256."""


@given(case=st.sampled_from(CASES))
def falsify_evaluation_has_a_limit(subject: Any, device: str, case: tuple[int, int]) -> None:
    held, length = case
    text = bytes(97 + k * k % 26 for k in range(1000)) * (held // 100 + 1)
    with scratch() as directory:
        (directory / "long").write_bytes(text[: 10 * held])
        places = {"data": directory / "long", "out": directory / "out", "device": device}
        result = run(subject, small(directory, length=length, batch_size=16, max_steps=1, **places))
    expected = (min(LIMIT, held) - 1) // (length - 1) * (length - 1)
    seen = {name: total.count for name, total in result.held_back.items()}
    assert seen.keys() >= {"hard_loss", "kl_at_1"} and set(seen.values()) == {expected}, (
        f"of {held} bytes held back, of which the first {LIMIT} count, {seen} were scored; expected {expected}"
    )


@given(
    tables=st.tuples(TABLE, TABLE),
    text=TEXTS,
    length=st.integers(2, 5),
    size=st.integers(1, 4),
    ranks=st.sampled_from([3, 2, 4]),
)
@example(tables=(NO_LOGITS, NO_LOGITS), text=torch.zeros(2, dtype=torch.int64), length=3, size=1, ranks=2)
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
