"""The example in the docstring of feature matching, and what its messages propose."""

import doctest

import torch
from torch import nn

from reference_trainer.distillation import features


def test_example_in_the_docstring_is_true() -> None:
    results = doctest.testmod(features)
    assert results.attempted > 0
    assert results.failed == 0


def test_training_with_a_projection_reduces_the_distance() -> None:
    torch.manual_seed(0)
    student, teacher = nn.Linear(4, 6), torch.randn(2, 3, 8)
    inputs, scored = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    projection = nn.Linear(6, 8)
    optimizer = torch.optim.AdamW([*student.parameters(), *projection.parameters()], lr=0.05)
    means = []
    for _ in range(50):
        loss = features.feature_loss(
            [student(inputs)], [teacher], scored, layers=[(-1, -1)], distance="cosine", projections=[projection]
        )
        means.append(float(loss.sum.detach() / loss.count))
        optimizer.zero_grad()
        (loss.sum / loss.count).backward()
        optimizer.step()
    assert means[-1] < 0.2 * means[0]
