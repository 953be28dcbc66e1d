"""Distillations of several kinds, recorded in the process of a worker, and the claims that they pass."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reference_trainer
from falsifiers.support.causal import write_chats
from falsifiers.support.recorded import assert_claims_about_every_run
from falsifiers.support.runs import SMALL
from pv import observe

ROWS = "TR-PROBE-003"
"""The output of a row depends on no other row."""
KINDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "features": ({"feature_weight": 1.0, "clip": 0.1}, {"TR-GRAD-003", ROWS}),
    "padded-bfloat16": (
        {"accumulate": 2, "dtype": "bfloat16"},
        {"TR-GRAD-001", "TR-GRAD-002", "TR-GRAD-003", ROWS},
    ),
    "on-policy": ({"on_policy": 1.0, "answer_tokens": 6}, {"TR-GRAD-001", "TR-GRAD-002", "TR-GRAD-003"}),
}
"""The settings of a kind, and the claims that its run must try, in addition to `EVERY_KIND`."""
EVERY_KIND = {"TR-NAN-001", "TR-PARAM-001", "TR-PARAM-004"}


def distil(subject: Any, *, device: str, directory: Path, trace: Callable[[dict[str, Any]], None], kind: str) -> None:
    """Distil bytes with hidden states, or chats of transformers; record the run in `directory`."""
    del trace
    # A thread that watches for a hang would keep the process from being copied, and so from being probed.
    options: dict[str, Any] = {"batch_size": 4, "max_steps": 3, "hang_after": 0.0, **KINDS[kind][0]}
    options |= {"device": device, "out": directory / "out"}
    if kind == "features":
        (directory / "text").write_bytes(bytes(range(200)) * 3)
        options = {**SMALL, **options, "data": directory / "text", "teacher_cache": directory / "cache"}
    else:
        options |= write_chats(directory, seed=0)
    lines = reference_trainer.Lines(io.StringIO())
    with observe(directory / "observed"):
        subject.distill(reference_trainer.Settings(**options), lines=lines)


def falsify_claims_about_every_run_hold(run: Any) -> None:
    assert_claims_about_every_run(run.directory / "observed", EVERY_KIND | KINDS[run.arguments["kind"]][1])
