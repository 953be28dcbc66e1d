"""Attacks on the manifest of a run. The subject is `reference_trainer.pipeline.distill`, or has its name."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.optimizer import register_optimizer_step_post_hook

from falsifiers.support.small_runs import SMALL, found, run, small


@contextmanager
def _optimizers() -> Iterator[list[dict[str, Any]]]:
    """Yield the name of each optimizer that steps, with the constants and the parameters of its groups."""
    seen: list[dict[str, Any]] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        kept = ("params", "weight_decay", "betas", "eps")
        groups = [{name: group[name] for name in kept} for group in optimizer.param_groups]
        seen.append({"name": type(optimizer).__name__, "groups": groups})

    hook = register_optimizer_step_post_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


def _clock(elapsed_s: float) -> Callable[[], float]:
    """Return a clock that shows 0 at the start and `elapsed_s` ever after."""
    shown = itertools.chain([0.0], itertools.repeat(elapsed_s))
    return lambda: next(shown)


@given(elapsed_s=st.sampled_from([0.0, 0.25, 8.0]), seed=st.integers(0, 9), epochs=st.integers(1, 2))
def falsify_manifest_entries_match_run(subject: Any, device: str, elapsed_s: float, seed: int, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as name, _optimizers() as stepped:
        settings = small(Path(name), out=Path(name, "out"), seed=seed, epochs=epochs, device=device)
        result = run(subject, settings, clock=_clock(elapsed_s))
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
