"""What a step holds while the student's backward runs."""

import weakref

import torch
from torch import Tensor

from reference_trainer.distillation.protocols import Batch, StudentPass
from reference_trainer.distillation.step import kd_step

TOKENS = torch.tensor([[0, 1]])


class Teacher:
    """Returns new logits, and keeps a weak reference to them."""

    vocab_size = 2

    def logits(self, batch: Batch) -> Tensor:
        logits_BTV = torch.zeros(1, 2, 2)
        self.released = weakref.ref(logits_BTV)
        return logits_BTV


class Student:
    """Notes whether the teacher's logits exist during its backward."""

    vocab_size = 2

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher
        self.held: list[bool] = []

    @property
    def logits(self) -> Tensor:
        return torch.zeros(1, 2, 2)

    def forward(self, batch: Batch) -> StudentPass:
        return self

    def backward(self, logit_gradient: Tensor) -> None:
        self.held.append(self.teacher.released() is not None)


def test_teacher_logits_are_released_before_the_backward() -> None:
    teacher = Teacher()
    student = Student(teacher)
    kd_step(teacher, student, Batch(tokens=TOKENS, labels=TOKENS), temperature=2.0, ce_weight=0.5, kd_weight=0.5)
    assert student.held == [False], "the teacher's logits take memory while the student's backward runs"
