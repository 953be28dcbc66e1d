"""Attacks on the evaluation on held-back text, by one rank and by several, and on its limit."""

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from falsifiers.evaluation import cases
from falsifiers.evaluation.cases import BATCH_SIZES, TABLE, TEXTS, VOCABULARY, Student, Teacher, evaluated
from falsifiers.support.assertions import assert_equal
from falsifiers.support.cases import TEMPERATURES
from falsifiers.support.fake_cuda import fake_cuda, moved
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import run, scratch, small
from reference_trainer.distillation.providers import ModuleTeacher
from reference_trainer.ranks.parallel import DataParallel

ZEROS = torch.zeros(VOCABULARY, VOCABULARY)
NO_LOGITS = ZEROS.double()
METRICS = ["agreement", "hard_loss", "kl_at_1", "kl_at_T", "soft_loss", "teacher_entropy", "teacher_loss"]
METRICS += ["token_accuracy"]


def _sums(student: Tensor, teacher: Tensor, text: Tensor, length: int, tau: float) -> tuple[dict[str, float], int]:
    """Return the oracle's sums of two tables, and the number of tokens."""
    rows, embedding = cases.rows_of(text, length), torch.nn.Embedding.from_pretrained
    return cases.sums_of(embedding(student), embedding(teacher), rows, tau), rows[:, 1:].numel()


@given(student=TABLE, teacher=TABLE, text=TEXTS, length=st.integers(2, 6), temperature=TEMPERATURES)
def falsify_evaluation_does_not_depend_on_batch_size(
    subject: Any, device: str, student: Tensor, teacher: Tensor, text: Tensor, length: int, temperature: float
) -> None:
    text = torch.cat((text, text[:1].expand(max(0, length - len(text)))))
    expected = _sums(student, teacher, text, length, temperature)
    assert_equal("the oracle's metrics", sorted(expected[0]), METRICS)
    for size in BATCH_SIZES:
        models = Teacher(teacher, device), Student(student, device)
        seen = evaluated(subject, *models, text, length, size, device, tau=temperature)
        cases.assert_sums(f"in batches of {size}", seen, *expected)


@given(
    text=TEXTS,
    flags=st.lists(st.booleans(), min_size=6, max_size=6),
    fails_at=st.integers(0, 3),
    students=st.booleans(),
)
def falsify_evaluation_does_not_change_student(
    subject: Any, device: str, text: Tensor, flags: list[bool], fails_at: int, students: bool
) -> None:
    """fails_at: the forward of the student that raises, or, if not `students`, whether the teacher's logits are NaN."""
    student = Student(ZEROS, device, fails_at if students else 0)
    teacher = Teacher(torch.full_like(ZEROS, torch.nan) if fails_at and not students else ZEROS, device)
    for part, flag in zip(student.modules(), flags, strict=False):
        part.training = flag
    weight = student.embedding.weight.detach().clone()
    before, failed, saved = [part.training for part in student.modules()], "", list[Tensor]()
    try:
        with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
            evaluated(subject, teacher, student, text, 2, 3, device)
    except (RuntimeError, ValueError) as error:
        failed = f" after {error}"
    assert_equal(f"training flags{failed}", [part.training for part in student.modules()], before)
    after = student.embedding.weight
    assert after.grad is None and after.requires_grad and torch.equal(after, weight), "the student was changed"
    assert not saved, f"an evaluation kept {len(saved)} tensors for a backward pass"
    assert torch.is_grad_enabled(), f"gradients are disabled in the process{failed}"


@given(text=TEXTS, batch_size=st.sampled_from(BATCH_SIZES), teachers=st.sampled_from(["cpu", "cuda"]))
@example(text=torch.zeros(9, dtype=torch.int64), batch_size=3, teachers="cpu")
@example(text=torch.zeros(9, dtype=torch.int64), batch_size=3, teachers="cuda")
def falsify_evaluation_mixes_no_devices(subject: Any, text: Tensor, batch_size: int, teachers: str) -> None:
    with fake_cuda():
        teacher = ModuleTeacher(moved(Student(ZEROS), teachers), VOCABULARY)
        seen = evaluated(subject, teacher, moved(Student(ZEROS), "cuda"), text, 2, batch_size, "cuda")
    assert_equal(f"metrics of a student on cuda, the teacher on {teachers}", sorted(seen), METRICS)


LIMIT = 2**16
HELD_BACK = [(257, 257), (LIMIT + 1, 257), (LIMIT + 1, 256)]
"""Bytes held back, and lengths: a byte above the limit completes a sequence of 257, a byte below ends one of 256."""


@given(case=st.sampled_from(HELD_BACK))
def falsify_evaluation_has_a_limit(subject: Any, device: str, case: tuple[int, int]) -> None:
    held_back, length = case
    text = bytes(97 + k * k % 26 for k in range(1000)) * (held_back // 100 + 1)
    with scratch() as directory:
        (directory / "long").write_bytes(text[: 10 * held_back])
        places = {"data": directory / "long", "out": directory / "out", "device": device}
        result = run(subject, small(directory, length=length, batch_size=16, max_steps=1, **places))
    expected = (min(LIMIT, held_back) - 1) // (length - 1) * (length - 1)
    counts = {name: total.count for name, total in result.held_back.items()}
    assert counts.keys() >= {"hard_loss", "kl_at_1"}, f"the metrics are {sorted(counts)}"
    assert_equal(f"scored bytes of {held_back}, at most {LIMIT} of them counted", set(counts.values()), {expected})


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
    def work(rank: int) -> tuple[Any, int]:
        student = Student(tables[0])
        module = DistributedDataParallel(student)
        options: dict[str, Any] = {"parallel": DataParallel(module)}
        return evaluated(subject, Teacher(tables[1]), module, text, length, size, **options), student.calls

    results = run_ranks(ranks, work)
    expected, count = _sums(*tables, text, length, 2.0)
    case = f"{count // (length - 1)} sequences in batches of {size} on {ranks} ranks"
    forwards = [calls for _, calls in results]
    assert len({*forwards}) == 1, f"{case}: the ranks make {forwards} forwards; expected equally many"
    for rank, (metrics, _) in enumerate(results):
        cases.assert_sums(f"{case}, rank {rank}", metrics, expected if count else {}, count)
