"""What the objective of a step costs: loss, gradient, checks and metrics, against the textbook loss and autograd.

    python benchmarks/objective.py [ROUNDS]

One process, variants interleaved; medians with the fastest and slowest round, as ratios to the four matrix products
that every variant has (two heads, and the two gradients of the student's). N = 1024 rows, V = 32,000, width 512, once
with every row scored and once with half of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from reference_trainer.distillation.rows import Weights, walk, weighted_sum

N, V, H = 1024, 32_000, 512
WEIGHTS = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)


class Heads:
    """Hidden states and output layers of a student and a teacher."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.student_NH, self.teacher_NH = (torch.randn(N, H, generator=draw) / H**0.5 for _ in range(2))
        self.head_VH, self.teacher_head_VH = (torch.randn(V, H, generator=draw) for _ in range(2))
        self.labels_N = torch.randint(V, (N,), generator=draw)
        self.masked_N = self.labels_N.where(torch.rand(N, generator=draw) < 0.5, -100)

    def logits(self) -> tuple[Tensor, Tensor]:
        """Return student logits that are part of a graph, and teacher logits."""
        head_VH, hidden_NH = self.head_VH.detach().requires_grad_(), self.student_NH.detach().requires_grad_()
        return hidden_NH @ head_VH.T, self.teacher_NH @ self.teacher_head_VH.T


def products(heads: Heads, labels_N: Tensor) -> float:
    del labels_N
    student_NV, _ = heads.student_NH @ heads.head_VH.T, heads.teacher_NH @ heads.teacher_head_VH.T
    return float((student_NV @ heads.head_VH)[0, 0] + (student_NV.T @ heads.student_NH)[0, 0])


def textbook(heads: Heads, labels_N: Tensor) -> float:
    """F.cross_entropy and F.kl_div over the scored rows, and autograd."""
    student_NV, teacher_NV = heads.logits()
    scored_N = labels_N != -100
    if not scored_N.all():
        student_NV, teacher_NV, labels_N = student_NV[scored_N], teacher_NV[scored_N], labels_N[scored_N]
    tau = WEIGHTS.temperature
    log_q_NV, log_p_NV = F.log_softmax(student_NV / tau, -1), F.log_softmax(teacher_NV / tau, -1)
    soft = tau**2 * F.kl_div(log_q_NV, log_p_NV, log_target=True, reduction="batchmean")
    loss = WEIGHTS.ce_weight * F.cross_entropy(student_NV, labels_N) + WEIGHTS.kd_weight * soft
    loss.backward()
    return loss.item()


def one_walk(heads: Heads, labels_N: Tensor) -> float:
    """As `kd_step` does it: one walk for loss, gradient and metrics, then the backward of the model."""
    student_NV, teacher_NV = heads.logits()
    count = int((labels_N != -100).sum())
    tensors = (student_NV[None], teacher_NV[None], labels_N[None])
    rows = walk(*tensors, WEIGHTS, ignore_index=-100, scale=1 / count, metrics=True)
    student_NV.backward(rows.gradient_BTV[0])
    return float(weighted_sum(rows, WEIGHTS)) / count


VARIANTS: dict[str, Callable[[Heads, Tensor], float]] = {
    "four matrix products": products,
    "textbook loss and autograd": textbook,
    "one walk over the rows": one_walk,
}


def compare(title: str, heads: Heads, labels_N: Tensor, rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds + 1):
        for name, variant in VARIANTS.items():
            began = time.perf_counter()
            variant(heads, labels_N)
            times[name].append(time.perf_counter() - began)
    base = statistics.median(times["four matrix products"][1:])
    print(f"\n| {title} | ratio | fastest | slowest |\n|---|---|---|---|")
    for name, taken in times.items():
        print(
            f"| {name} | {statistics.median(taken[1:]) / base:.2f} | {min(taken[1:]):.2f} s | {max(taken[1:]):.2f} s |"
        )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    heads = Heads()
    compare("every row scored", heads, heads.labels_N, rounds)
    compare("half of the rows scored", heads, heads.masked_N, rounds)


if __name__ == "__main__":
    main()
