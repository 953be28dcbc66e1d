"""Attacks on nats that are more exact than the float32 softmax from which they are computed.

The subject has `walk` and `Weights`, as `reference_trainer.distillation.rows` does. Probabilities of equal logits are
rounded alike, so their sum differs from 1, and dividing by it is exact whatever the kernel.
"""

from __future__ import annotations

import math
from typing import Any

import torch

EXACT, NEARLY = 1e-11, 1e-6  # many roundings of float64; less than one of float32 at 1e4, which is 6e-4
FAR = [-10001, -10001.5, -10002.25, 0]
CASES: list[tuple[str, list[float], list[float], str, float, float]] = [
    ("equal logits", [0, 0, 0], [0, 0, 0], "cross_entropy_P", math.log(3), EXACT),
    ("a certain student", [0, 0, -64], [0, 0, 0], "kl_P", 64 / 3 - math.log(1.5), EXACT),
    ("a certain student", [0, 0, -64], [0, 0, 0], "kl_at_1_P", 64 / 3 - math.log(1.5), EXACT),
    ("a certain teacher", [0, 0, 0, -200], FAR, "divergence_P", 30004.75 / 3 - math.log(3), NEARLY),
]


def falsify_nats_of_a_rounded_softmax(subject: Any, device: str) -> None:
    weights = subject.Weights(temperature=1.0, ce_weight=1.0, kd_weight=1.0, divergence="reverse_kl")
    label = torch.zeros(1, 1, dtype=torch.int64, device=device)
    for what, student, teacher, name, expected, allowed in CASES:
        logits = (torch.tensor([[row]], dtype=torch.float32, device=device) for row in (student, teacher))
        seen = float(getattr(subject.walk(*logits, label, weights, ignore_index=-100, metrics=True), name))
        assert abs(seen - expected) <= allowed, (
            f"{what}: {name} is off by {seen - expected:.3g} from {expected}; allowed {allowed}"
        )
