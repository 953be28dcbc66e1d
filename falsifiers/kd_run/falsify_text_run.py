"""Attacks on a distillation run on real text: predicates over `falsifiers/kd_run/text_run.py::distill_text`."""

from __future__ import annotations

import math
from typing import Any


def falsify_held_back_loss_falls(run: Any) -> None:
    held_back = run.result["held_back"]
    for name in ("mix", "cross_entropy", "kl"):
        before, after = held_back["before"][name], held_back["after"][name]
        assert after < 0.9 * before, (
            f"held-back {name} changed from {before:.4f} to {after:.4f} nats per byte in {run.result['steps']} steps; "
            f"expected a fall by more than 10 %"
        )
    for name, moved in run.result["moved"].items():
        assert moved["change"] > 1000 * moved["rounding"], (
            f"{name} changed by {moved['change']:.3g} in {run.result['steps']} steps; expected more than 1000 "
            f"roundings of {moved['rounding']:.3g}"
        )


def falsify_teacher_is_bit_for_bit_the_same(run: Any) -> None:
    teacher = run.result["teacher"]
    assert teacher["digest_after"] == teacher["digest_before"], (
        f"the digest of the teacher's weights changed from {teacher['digest_before'][:12]} to "
        f"{teacher['digest_after'][:12]}"
    )
    assert teacher["answers_after"] == teacher["answers_before"], (
        "the teacher's logits changed with equal weights and tokens; probably it is in train mode"
    )
    assert teacher["with_gradient"] == [], f"the teacher's {teacher['with_gradient']} have gradients"


def falsify_same_seed_same_weights(run: Any) -> None:
    weights = run.result["weights_after_repeated_steps"]
    assert weights["again"] == weights["first"], (
        f"two runs with one seed ended at weights with digests {weights['first'][:12]} and {weights['again'][:12]}"
    )
    assert weights["other_seed"] != weights["first"], (
        f"runs with two seeds ended at equal weights with digest {weights['first'][:12]}"
    )


def falsify_every_step_is_reported(run: Any) -> None:
    steps = [event for event in run.trace if event["event"] == "step"]
    numbers = [event["step"] for event in steps]
    assert numbers == list(range(1, run.arguments["steps"] + 1)), f"steps {numbers[:5]}... of {run.arguments['steps']}"
    for event in steps:
        where = f"step {event['step']}"
        assert event["count"] == event["scored"], f"{where} reports {event['count']} tokens; expected {event['scored']}"
        mean = event["sum"] / event["count"]
        assert math.isclose(event["loss"], mean, rel_tol=1e-12), (
            f"{where} reports the loss {event['loss']}; expected sum / count = {mean}"
        )
        expected = event.get("expected_loss", event["loss"])
        # The logits are the same float32 ones; 256 terms of float32 arithmetic stay within 1e-5 of about 3 nats.
        assert math.isclose(event["loss"], expected, rel_tol=1e-5), (
            f"{where} reports {event['loss']:.7f} nats per token; expected {expected:.7f}, recomputed in float64"
        )
