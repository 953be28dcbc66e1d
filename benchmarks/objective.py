"""What the objective of a step costs, against plain PyTorch and other libraries: time, memory and agreement.

    python benchmarks/objective.py [ROUNDS]

The models are one output layer each. Every variant forms student and teacher logits [N, V], the loss, and the gradients
of the student's hidden states and weights. First each variant's loss and gradients are compared with float64. Then all
run interleaved in one process; medians of CPU seconds, with the fastest and slowest round. Last, plain PyTorch and the
walk against N and V.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping

import torch
from losses import ENTROPY_MISSING, EXCLUDED, KD, OBJECTIVE, PLAIN, PRODUCTS, SWEPT, TAU, Problem, Variant, variants
from measuring import Taken, peak_bytes, taken

N, V, H = 1024, 32_000, 512
MIB = 1 << 20


def gradients(problem: Problem, variant: Variant) -> tuple[float, list[torch.Tensor]]:
    """Return the loss and the gradients of hidden states and weights, float64."""
    loss = variant(problem)
    return loss, [parameter.grad.double() for parameter in problem.student.parameters() if parameter.grad is not None]


def check(problem: Problem, chosen: Mapping[str, Variant]) -> None:
    """Print how far each loss, and the norm of each gradient's difference, is from float64; stop if it is far."""
    wide = problem.double()
    expected, expected_gradients = gradients(wide, chosen[PLAIN])
    offset = KD * TAU**2 * wide.teacher_entropy(TAU)
    print("\n| agreement with float64 | loss, relative | gradients, relative |\n|---|---|---|")
    for name, variant in chosen.items():
        if name == PRODUCTS:
            continue
        loss, seen = gradients(problem, variant)
        wanted = expected + offset * (name in ENTROPY_MISSING)
        of_loss = abs(loss / wanted - 1)
        of_gradient = max(float((a - b).norm() / b.norm()) for a, b in zip(seen, expected_gradients, strict=True))
        print(f"| {name} | {of_loss:.0e} | {of_gradient:.0e} |", flush=True)
        if max(of_loss, of_gradient) > 1e-4:
            raise SystemExit(f"{name} computes another objective: loss {loss}, expected {wanted}")


def medians(times: Mapping[str, list[Taken]]) -> dict[str, Taken]:
    return {
        name: Taken(*(statistics.median(each) for each in zip(*of_name, strict=True)))
        for name, of_name in times.items()
    }


def compare(title: str, problem: Problem, chosen: Mapping[str, Variant], rounds: int) -> None:
    times = taken(problem, chosen, rounds)
    typical = medians(times)
    print(f"\n| {title} | CPU s | of {PLAIN} | of the products | fastest, slowest | wall s | peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for name, (cpu, wall) in typical.items():
        spread = f"{min(times[name]).cpu:.2f}, {max(times[name]).cpu:.2f}"
        ratios = f"{cpu / typical[PLAIN].cpu:.2f} | {cpu / typical[PRODUCTS].cpu:.2f}"
        print(f"| {name} | {cpu:.2f} | {ratios} | {spread} | {wall:.2f} | ", end="")
        print(f"{peak(problem, chosen[name]) / MIB:.0f} |", flush=True)


def peak(problem: Problem, variant: Variant) -> int:
    problem.student.zero_grad()  # the gradients are part of what a variant needs
    return peak_bytes(problem, variant)


def sweep(chosen: Mapping[str, Variant], rounds: int) -> None:
    """Print nanoseconds and bytes per logit of one model against N and V; H is small, so that the products are too."""
    chosen = {name: chosen[name] for name in SWEPT}
    print(f"\n| N | V | {' | '.join(f'{name}, ns | bytes' for name in chosen)} |\n|---|---|{'---|' * 2 * len(chosen)}")
    for rows, vocabulary in ((256, 8_000), (1024, 8_000), (4096, 8_000), (16_384, 8_000), (N, V), (N, 152_064)):
        problem = Problem(rows, vocabulary, 16, masked=False)
        typical, logits = medians(taken(problem, chosen, rounds)), rows * vocabulary
        cells = [
            f"{1e9 * typical[name].cpu / logits:.1f} | {peak(problem, variant) / logits:.1f}"
            for name, variant in chosen.items()
        ]
        print(f"| {rows:,} | {vocabulary:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    chosen = variants()
    for name, reason in EXCLUDED.items():
        print(f"left out: {name}: {reason}")
    print(f"N = {N}, V = {V}, H = {H}, {OBJECTIVE}")
    for title, masked in (("every row scored", False), ("half of the rows scored", True)):
        check(Problem(N // 8, V, H, masked=masked), chosen)
        compare(title, Problem(N, V, H, masked=masked), chosen, rounds)
    sweep(chosen, min(rounds, 3))


if __name__ == "__main__":
    main()
