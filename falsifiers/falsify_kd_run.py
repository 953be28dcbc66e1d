"""Attacks on what a distillation on real text did: predicates over `falsifiers/runs.py::distill_text`."""

from __future__ import annotations

import math
from typing import Any


def falsify_held_back_loss_falls(run: Any) -> None:
    """By a tenth at least, on text that neither model has seen: a few steps do as much."""
    held_back = run.result["held_back"]
    for name in ("mix", "cross_entropy", "kl"):
        before, after = held_back["before"][name], held_back["after"][name]
        assert after < 0.9 * before, (
            f"held-back {name} went from {before:.4f} to {after:.4f} nats per byte in {run.result['steps']} steps; "
            f"expected a fall by more than 10 %"
        )


def falsify_weights_move_beyond_rounding(run: Any) -> None:
    """Every tensor of the student's own moved by a thousand times what rounding it to float32 could."""
    for name, moved in run.result["moved"].items():
        assert moved["change"] > 1000 * moved["rounding"], (
            f"{name} moved by {moved['change']:.3g} in {run.result['steps']} steps; rounding alone is "
            f"{moved['rounding']:.3g}"
        )


def falsify_teacher_is_bit_for_bit_the_same(run: Any) -> None:
    """Its parameters, its answers, and no gradient, though student and optimizer hold its embedding."""
    teacher = run.result["teacher"]
    assert teacher["digest_after"] == teacher["digest_before"], (
        f"the teacher's weights went from {teacher['digest_before'][:12]} to {teacher['digest_after'][:12]}"
    )
    assert teacher["answers_after"] == teacher["answers_before"], (
        "the teacher answers the same tokens differently than before, with the same weights: is it in train mode?"
    )
    assert teacher["with_gradient"] == [], f"the teacher's {teacher['with_gradient']} have gradients"


def falsify_same_seed_same_weights(run: Any) -> None:
    """And another seed gives others, so that the digest is one of something that learns."""
    weights = run.result["weights_after_repeated_steps"]
    assert weights["again"] == weights["first"], (
        f"two runs of one seed ended at weights {weights['first'][:12]} and {weights['again'][:12]}"
    )
    assert weights["other_seed"] != weights["first"], f"two seeds ended at the same weights {weights['first'][:12]}"


def falsify_every_step_is_reported(run: Any) -> None:
    """Each step in order with its scored tokens and their mean loss; the first and last as recomputed in float64."""
    steps = [event for event in run.trace if event["event"] == "step"]
    numbers = [event["step"] for event in steps]
    assert numbers == list(range(1, run.arguments["steps"] + 1)), f"steps {numbers[:5]}... of {run.arguments['steps']}"
    for event in steps:
        where = f"step {event['step']}"
        assert event["count"] == event["scored"], (
            f"{where} counts {event['count']} tokens, {event['scored']} are scored"
        )
        assert event["loss"] is not None and math.isfinite(event["loss"]), f"{where} reports the loss {event['loss']}"
        mean = event["sum"] / event["count"]
        assert math.isclose(event["loss"], mean, rel_tol=1e-12), f"{where}: loss {event['loss']}, sum / count {mean}"
        expected = event.get("expected_loss", event["loss"])
        # The logits are the same float32 ones; 256 terms of float32 arithmetic stay within 1e-5 of about 3 nats.
        assert math.isclose(event["loss"], expected, rel_tol=1e-5), (
            f"{where} reports {event['loss']:.7f} nats per token, recomputed in float64 it is {expected:.7f}"
        )
