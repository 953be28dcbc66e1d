"""Attacks on the models and the process of a whole distillation: predicates over `reference_run.py::distil`.

Expected losses are computed by `falsifiers/support/decoder_oracle.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from safetensors.torch import load_file

from falsifiers.distill_run.reference_run import CHOSEN
from falsifiers.distill_run.run_observations import digests
from falsifiers.distill_run.run_oracles import HEADS, batches_of, held_back_of, weights_of
from falsifiers.support import decoder_oracle as oracle


def falsify_student_learns(run: Any) -> None:
    train = run.result["train"]
    assert train["final_loss"] < 0.75 * train["initial_loss"], (
        f"the loss went from {train['initial_loss']:.4f} to {train['final_loss']:.4f} in "
        f"{train['steps_completed']} steps"
    )
    (before, tokens), (after, _) = (held_back_of(run, student, every=8) for student in ("untrained", "out"))
    for name in before:
        assert after[name] < 0.9 * before[name], (
            f"held-back {name} went from {before[name] / tokens:.4f} to {after[name] / tokens:.4f} nats per byte in "
            f"{train['steps_completed']} steps; expected a fall by more than 10 %"
        )
    _assert_every_weight_is_trained(weights_of(run, "untrained"), weights_of(run, "out"))


def _assert_every_weight_is_trained(untrained: dict[str, oracle.Array], trained: dict[str, oracle.Array]) -> None:
    """Assert that each tensor moved by a thousand times what rounding it to float32 could."""
    assert set(untrained) == set(trained), f"exported are {sorted(trained)}; the student has {sorted(untrained)}"
    for name, before in untrained.items():
        change, rounding = np.linalg.norm(trained[name] - before), np.linalg.norm(before) * 2.0**-24
        assert change > 1000 * rounding, f"{name} moved by {change:.3g}; rounding alone is {rounding:.3g}"


def falsify_first_loss_follows_settings(run: Any) -> None:
    tokens = np.array(run.result["first_batch"])
    student = oracle.logits(weights_of(run, "untrained"), HEADS["student"], tokens)
    teacher = oracle.logits(weights_of(run, "teacher"), HEADS["teacher"], tokens)
    tau, count = CHOSEN["temperature"], tokens[:, 1:].size
    hard, soft = oracle.losses(student, teacher, tokens, tau)
    expected = (CHOSEN["ce_weight"] * hard + CHOSEN["kd_weight"] * tau**2 * soft) / count
    seen = run.result["train"]["initial_loss"]
    # float32 logits, and 256 terms of float32 arithmetic a byte, stay within 1e-5 of a few nats.
    assert math.isclose(seen, expected, rel_tol=1e-5), (
        f"the first loss is {seen:.7f} nats per byte; with the settings' temperature and weights it is {expected:.7f}"
    )
    # The student's schedule spans every epoch: max_steps does not shorten it. The teacher's spans its own steps.
    planned = run.result["settings"]["epochs"] * len(batches_of(run))
    totals = {"rates": (run.arguments["steps"], planned), "teacher_rates": (run.arguments["teacher_steps"],) * 2}
    for kind, (steps, total) in totals.items():
        rates, seen_rates = [_rate(step, total) for step in range(1, steps + 1)], run.result["optimizer"][kind]
        assert len(seen_rates) == len(rates) and np.allclose(seen_rates, rates, rtol=1e-12, atol=0), (
            f"the optimizer's {len(seen_rates)} {kind} begin with {seen_rates[:9]}; expected {len(rates)}: {rates[:9]}"
        )


def _rate(step: int, total: int) -> float:
    """Linear to the peak at the last step of the warm-up, then half a cosine down to a tenth at step `total`."""
    peak, warmup = CHOSEN["lr"], CHOSEN["warmup"]
    if step <= warmup:
        return peak * step / warmup
    return peak * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / (total - warmup)))


def falsify_teacher_is_unchanged(run: Any) -> None:
    """Weight decay alone would change a parameter that is in the student's optimizer."""
    teacher, strangers = run.result["teacher"], run.result["optimizer"]["strangers"]
    moved = [name for name, digest in teacher["kept"].items() if teacher["weights"].get(name) != digest]
    assert not moved, f"the teacher's {moved} differ from those cached before the distillation"
    assert teacher["with_gradient"] == [], f"the teacher's {teacher['with_gradient']} have gradients"
    assert strangers == [], f"the student's optimizer holds {strangers}"


def falsify_seed_determines_weights(run: Any) -> None:
    """On CUDA gradients of repeated tokens are added in no fixed order; after a few steps of AdamW the difference
    stays below 1 % of the distance from the start."""
    allowed, repeated = (0.0 if run.device == "cpu" else 0.01), run.result["repeated"]
    for name in ("trained", "cached", "given"):
        assert repeated[name] <= allowed, (
            f"with a {name} teacher, a run of the same seed ends {repeated[name]:.3g} of the distance from the start "
            f"away; allowed {allowed}"
        )
    assert repeated["other"] > 0.5, f"two seeds differ by only {repeated['other']:.3g} of the distance from the start"


def falsify_exported_weights_equal_trained_weights(run: Any) -> None:
    written, trained = digests(load_file(run.directory / "out/model.safetensors")), run.result["student"]
    wrong = [name for name in {**written, **trained} if written.get(name) != trained.get(name)]
    assert not wrong, f"{wrong} in the file differ from the trained student's"


def falsify_process_state_is_restored(run: Any) -> None:
    """Random numbers of torch, device, Python and NumPy; torch's defaults and flags; handlers, folder, environment."""
    state = run.result["state"]
    for name, before in state["before"].items():
        assert state["after"][name] == before, f"{name}: {before} before the runs, {state['after'][name]} after them"
    assert state["seeded"] == [], f"the run seeded the generators of all CUDA devices with {state['seeded'][:3]}"
