"""Attacks on the evaluation on held-back text. The subject is `training.evaluation`, or has its names."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.strategies import LOGITS, KdCase, tensors

BATCH_SIZES = (1, 3, 7, 16)
VOCABULARY = 4


class Tables:
    """A teacher and a text of bytes below 4 for it; the student is `Student`."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.vocab_size = table, VOCABULARY

    def logits(self, batch: Any) -> Tensor:
        return self.table[batch.tokens]


class Student(nn.Module):
    """A table with dropout, which evaluation has to disable, and a forward pass that may raise."""

    def __init__(self, table: Tensor, fails_at: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(*table.shape, _weight=table.clone())
        self.parts = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
        self.fails_at, self.calls = fails_at, 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the student fails on purpose")
        logits: Tensor = self.parts(self.embedding(tokens))
        return logits


TABLE = tensors((VOCABULARY, VOCABULARY), LOGITS, torch.float64)
TEXTS = st.binary(min_size=2, max_size=70).map(lambda content: torch.tensor([b % VOCABULARY for b in content]))


def sequences_of(subject: Any, text: Tensor, length: int, batch_size: int) -> Any:
    device = torch.device("cpu")
    return subject.Sequences(bytes_N=text.to(torch.uint8), length=length, batch_size=batch_size, device=device)


def cases_of(student: Tensor, teacher: Tensor, text: Tensor, length: int) -> dict[str, KdCase]:
    """Return the expected cases: every sequence in one batch, at temperature 1."""
    count = (len(text) - 1) // (length - 1)
    rows = torch.stack([text[k * (length - 1) :][:length] for k in range(count)])
    tokens = rows[:, :-1]
    both = {"cross_entropy": (1.0, 0.0), "kl": (0.0, 1.0)}
    return {
        name: KdCase(student[tokens], teacher[tokens], rows[:, 1:], 1.0, *weights) for name, weights in both.items()
    }


@given(student=TABLE, teacher=TABLE, text=TEXTS, length=st.integers(2, 6))
def falsify_evaluation_does_not_depend_on_batch_size(
    subject: Any, student: Tensor, teacher: Tensor, text: Tensor, length: int
) -> None:
    """Sum and count are the oracle's, over all sequences, in batches of 1, 3, 7 and 16, the last of them smaller."""
    text = torch.cat((text, text[:1].expand(max(0, length - len(text)))))
    for batch_size in BATCH_SIZES:
        module = Student(student)
        seen = subject.evaluate(Tables(teacher), module, sequences_of(subject, text, length, batch_size))
        for name, case in cases_of(student, teacher, text, length).items():
            assert name in seen, f"{name} is missing in batches of {batch_size}, among {sorted(seen)}: nothing scored?"
            assert seen[name].count == case.labels.numel(), (
                f"{name} counts {seen[name].count} tokens in batches of {batch_size}; expected {case.labels.numel()}"
            )
            kinds = [type(seen[name].sum).__name__, type(seen[name].count).__name__]
            assert kinds == ["float", "int"], (
                f"{name} is a sum and a count of the types {kinds}; expected float and int"
            )
            apart, allowed = abs(seen[name].sum - case.oracle_nats()), case.allowed_nats()
            assert apart <= allowed, (
                f"{name} is {seen[name].sum!r} nats in batches of {batch_size}, the oracle's value is "
                f"{case.oracle_nats()!r}; apart by {apart:.3g}, allowed {allowed:.3g}"
            )


@given(
    text=TEXTS, flags=st.lists(st.booleans(), min_size=6, max_size=6), fails_at=st.integers(0, 3), whose=st.booleans()
)
def falsify_evaluation_does_not_change_student(
    subject: Any, text: Tensor, flags: list[bool], fails_at: int, whose: bool
) -> None:
    """Each submodule's training flag, also after an exception of either model; no gradient; gradients stay enabled."""
    table = torch.zeros(VOCABULARY, VOCABULARY)
    teacher, student = Tables(table), Student(table, fails_at if whose else 0)
    if fails_at and not whose:
        teacher.table = torch.full_like(table, torch.nan)
    for part, flag in zip(student.modules(), flags, strict=False):
        part.training = flag
    before = [part.training for part in student.modules()]
    failed = ""
    try:
        subject.evaluate(teacher, student, sequences_of(subject, text, 2, 3))
    except (RuntimeError, ValueError) as error:
        failed = f" after {error}"
    after = [part.training for part in student.modules()]
    assert after == before, f"training flags were {before} and are {after}{failed}"
    assert student.embedding.weight.grad is None and student.embedding.weight.requires_grad, "the student was changed"
    assert torch.is_grad_enabled(), f"gradients are disabled in the process{failed}"


@given(student=TABLE, teacher=TABLE, text=TEXTS, batch_size=st.sampled_from(BATCH_SIZES))
def falsify_evaluation_builds_no_graph(
    subject: Any, student: Tensor, teacher: Tensor, text: Tensor, batch_size: int
) -> None:
    """Torch's saved-tensor hook is never called."""
    kept: list[Tensor] = []
    module, sequences = Student(student), sequences_of(subject, text, 2, batch_size)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        subject.evaluate(Tables(teacher), module, sequences)
    sizes = [tuple(each.shape) for each in kept]
    assert not kept, (
        f"evaluating {len(sequences)} sequences in batches of {batch_size} kept tensors of the sizes {sizes} for a "
        f"backward pass; expected none, because the student gets no gradient"
    )


@given(size=st.integers(0, 8), batch_size=st.sampled_from(BATCH_SIZES))
def falsify_metric_without_tokens_is_absent(subject: Any, size: int, batch_size: int) -> None:
    """A text shorter than a sequence has no loss, rather than a perfect 0."""
    table = torch.zeros(VOCABULARY, VOCABULARY)
    sequences = sequences_of(subject, torch.zeros(size, dtype=torch.int64), 9, batch_size)
    seen = subject.evaluate(Tables(table), Student(table), sequences)
    assert seen == {}, f"{size} bytes hold no sequence of 9, and the evaluation reports {seen}"
