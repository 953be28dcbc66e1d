"""Attacks on the models, the process and the manifest of a distillation: predicates over `reference_run.py::distil`."""

import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_post_hook

from falsifiers.distill_run.reference_run import CHOSEN
from falsifiers.distill_run.run_observations import HEADS, batches_of, digests, held_back_of, weights_of
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support.small_runs import SMALL, found, run, small


def falsify_student_learns(run: Any) -> None:
    first, last = (run.result["train"][f"{which}_loss"] for which in ("initial", "final"))
    assert last < 0.75 * first, f"the loss went from {first:.4f} to {last:.4f}"
    (before, _), (after, _) = (held_back_of(run, student) for student in ("untrained", "out"))
    for name in before:
        assert after[name] < 0.9 * before[name], f"held-back {name} went from {before[name]} to {after[name]}"
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
    assert math.isclose(seen, expected, rel_tol=1e-5), f"the first loss is {seen:.7f}; the settings' is {expected:.7f}"
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
        assert repeated[name] <= allowed, f"a {name} teacher: {repeated[name]:.3g} of the way; allowed {allowed}"
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


@contextmanager
def _optimizers() -> Iterator[list[dict[str, Any]]]:
    """Yield the name of each optimizer that steps, with the constants and the parameters of its groups."""
    seen: list[dict[str, Any]] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        kept = ("params", "weight_decay", "betas", "eps")
        groups = [{name: group[name] for name in kept} for group in optimizer.param_groups]
        seen.append({"name": type(optimizer).__name__, "groups": groups})

    with register_optimizer_step_post_hook(note):
        yield seen


@given(elapsed_s=st.sampled_from([0.0, 0.25, 8.0]), seed=st.integers(0, 9))
def falsify_manifest_entries_match_run(subject: Any, device: str, elapsed_s: float, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name, _optimizers() as stepped:
        settings = small(Path(name), out=Path(name, "out"), seed=seed, epochs=2, device=device)
        shown = itertools.chain([0.0], itertools.repeat(elapsed_s))
        result = run(subject, settings, clock=lambda: next(shown))
        manifest = json.loads((settings.out / "manifest.json").read_text())
        config = json.loads((settings.out / "config.json").read_text())
        files = found(settings.out)
        (teacher,) = settings.teacher_cache.glob("*/model.safetensors")
        expected = {
            "schema": "reference-trainer/manifest/1",
            "settings": {name: str(value) if isinstance(value, Path) else value for name, value in settings},
            "seed": seed,
            "unit": "byte",
            "data_sha256": hashlib.sha256(bytes(range(100))).hexdigest(),
            "teacher_sha256": hashlib.sha256(teacher.read_bytes()).hexdigest(),
            "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
            "threads": torch.get_num_threads(),
            "sha256": {name: files[name] for name in ("model.safetensors", "config.json")},
        }
    assert set(files) == {"config.json", "manifest.json", "model.safetensors"}, f"the files are {sorted(files)}"
    shape = {"vocab_size": 256, "layers": SMALL["layers"], "width": SMALL["width"], "heads": 1}
    assert config == {"model_type": "reference_trainer.decoder", **shape}, f"config.json says {config}; shape {shape}"
    assert {name: manifest.get(name) for name in expected} == expected, f"{manifest}; expected {expected}"
    others = {"versions", "result", "held_back", "optimizer", "evaluation"}  # the last is that of `evaluation`
    assert set(manifest) - set(expected) == others, f"entries are {sorted(manifest)}; expected {sorted(others)} too"
    assert all(map(manifest["versions"].get, ("reference_trainer", "torch", "python"))), f"{manifest['versions']}"
    _assert_optimizer(manifest["optimizer"], stepped[-1], result.student)
    _assert_numbers(manifest, result, elapsed_s)


def _assert_optimizer(written: dict[str, Any], stepped: dict[str, Any], student: torch.nn.Module) -> None:
    names = {each: f"student.{name}" for name, each in student.named_parameters()}
    expected = [
        {
            "parameters": [names[each] for each in group["params"]],
            **{name: group[name] for name in ("weight_decay", "eps")},
            "betas": list(group["betas"]),
        }
        for group in stepped["groups"]
    ]
    seen = [{name: group.get(name) for name in expected[0]} for group in written["groups"]]
    assert written["name"] == stepped["name"], f"the manifest says {written['name']}; it is {stepped['name']}"
    assert seen == expected, f"the manifest says {seen}; the groups of the optimizer are {expected}"


def _assert_numbers(manifest: dict[str, Any], result: Any, elapsed_s: float) -> None:
    train, reported = result.train, dict(manifest["result"])
    for what, count in (("steps", train.steps_completed), ("tokens", train.tokens)):
        seen, expected = reported.pop(f"throughput_{what}_per_s", None), count / max(elapsed_s, 1e-9)
        assert seen is not None and math.isclose(seen, expected, rel_tol=1e-9), (
            f"{count} {what} in {elapsed_s} s are {seen!r} per second; expected {expected}"
        )
    assert reported == asdict(train), f"the manifest's result is {reported}; the run's {asdict(train)}"
    held_back = {name: {"sum": each.sum, "count": each.count} for name, each in result.held_back.items()}
    assert manifest["held_back"] == held_back, f"held back are {manifest['held_back']}; measured were {held_back}"
