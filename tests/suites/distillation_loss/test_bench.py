from typing import Any

import pytest
import torch
from torch import Tensor

from pv.suites.distillation_loss.bench import Bench
from pv.suites.driving import NotDriven


def other(student: Tensor, teacher: Tensor) -> Tensor:
    return student.sum()


other.divergence = "jensen"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda student: student, "it is no function of two logits"),
        (lambda student, teacher, beta: student, "nothing is known for its parameter 'beta'"),
        (lambda student, teacher: student, "it returned Tensor, not a scalar tensor"),
        (other, r"unknown divergence 'jensen' \(choose from forward, reverse\)"),
        (3, "it is no function of two logits"),
    ],
)
def test_what_to_write_is_said_where_it_cannot_be_driven(make: Any, why: str) -> None:
    with pytest.raises(NotDriven, match=rf"(?s)cannot drive .*{why}.*def loss\(student, teacher, labels, temperature"):
        Bench(make)


def test_a_loss_of_rows_gets_rows() -> None:
    def loss(student_NV: Tensor, teacher_NV: Tensor, labels_N: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(student_NV - teacher_NV, labels_N)

    case = Bench(loss).case(0)
    assert case.student.shape == (10, 1, 7)
