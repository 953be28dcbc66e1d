"""What the objective of a step costs: loss, gradient, checks and metrics, against the textbook loss and autograd.

    python benchmarks/objective.py [ROUNDS]

One process, one thread, variants interleaved; medians of CPU seconds, as ratios to the textbook loss, so that other
processes matter little. Logits are given: the matrix products of the models, which every variant has, are not part of
it. N = 1024 rows, V = 32,000, once with every row scored and once with half of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from reference_trainer.distillation.rows import Weights, walk, weighted_sum

N, V, H = 1024, 32_000, 512
WEIGHTS = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)


class Logits:
    """Logits of a student and a teacher with a hidden width of `H`, and labels, half of them unscored in `masked_N`."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        hidden_NH, head_VH = torch.randn(2, N, H, generator=draw) / H**0.5, torch.randn(2, V, H, generator=draw)
        self.student_NV, self.teacher_NV = hidden_NH @ head_VH.transpose(1, 2)
        self.labels_N = torch.randint(V, (N,), generator=draw)
        self.masked_N = self.labels_N.where(torch.rand(N, generator=draw) < 0.5, -100)


def textbook(logits: Logits, labels_N: Tensor) -> float:
    """F.cross_entropy and F.kl_div over the scored rows, and autograd to the logits."""
    leaf_NV = logits.student_NV.detach().requires_grad_()
    student_NV, teacher_NV, scored_N = leaf_NV, logits.teacher_NV, labels_N != -100
    if not scored_N.all():
        student_NV, teacher_NV, labels_N = student_NV[scored_N], teacher_NV[scored_N], labels_N[scored_N]
    tau = WEIGHTS.temperature
    log_q_NV, log_p_NV = F.log_softmax(student_NV / tau, -1), F.log_softmax(teacher_NV / tau, -1)
    soft = tau**2 * F.kl_div(log_q_NV, log_p_NV, log_target=True, reduction="batchmean")
    loss = WEIGHTS.ce_weight * F.cross_entropy(student_NV, labels_N) + WEIGHTS.kd_weight * soft
    loss.backward()
    return loss.item()


def one_walk(logits: Logits, labels_N: Tensor, weights: Weights = WEIGHTS, metrics: bool = False) -> float:
    """As `kd_step` does it: one walk for loss and gradient, and for metrics if asked for."""
    count = int((labels_N != -100).sum())
    tensors = (logits.student_NV[None], logits.teacher_NV[None], labels_N[None])
    rows = walk(*tensors, weights, ignore_index=-100, scale=1 / count, metrics=metrics)
    return float(weighted_sum(rows, weights)) / count


VARIANTS: dict[str, Callable[[Logits, Tensor], float]] = {
    "textbook loss and autograd": textbook,
    "walk": one_walk,
    "walk with metrics": partial(one_walk, metrics=True),
    "walk, reverse KL": partial(one_walk, weights=replace(WEIGHTS, divergence="reverse_kl")),
    "walk, Jensen-Shannon": partial(one_walk, weights=replace(WEIGHTS, divergence="jensen_shannon")),
}


def compare(title: str, logits: Logits, labels_N: Tensor, rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds + 1):
        for name, variant in VARIANTS.items():
            began = time.process_time()
            variant(logits, labels_N)
            times[name].append(time.process_time() - began)
    base = statistics.median(times["textbook loss and autograd"][1:])
    print(f"\n| {title} | ratio | fastest | slowest |\n|---|---|---|---|")
    for name, taken in times.items():
        ratio = statistics.median(taken[1:]) / base
        print(f"| {name} | {ratio:.2f} | {min(taken[1:]):.2f} s | {max(taken[1:]):.2f} s |")


def main() -> None:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    logits = Logits()
    compare("every row scored", logits, logits.labels_N, rounds)
    compare("half of the rows scored", logits, logits.masked_N, rounds)


if __name__ == "__main__":
    main()
