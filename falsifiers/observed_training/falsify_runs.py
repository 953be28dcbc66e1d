"""Distillations of several kinds, recorded in the process of a worker, and the claims that they pass."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import reference_trainer
from falsifiers.hugging_face_run.falsify_run import conversations, word_tokenizer, write_causal
from falsifiers.support.runs import SMALL
from pv import observe
from pv.suites.training_run.claims import judge
from pv.suites.training_run.run import read_folder

PADDED = ("TR-MASK-003", "TR-PROBE-003")
KINDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "features": ({"feature_weight": 1.0, "clip": 0.1}, {"TR-GRAD-003", *PADDED}),
    "padded-bfloat16": (
        {"accumulate": 2, "dtype": "bfloat16"},
        {"TR-GRAD-001", "TR-GRAD-002", "TR-GRAD-003", *PADDED},
    ),
    "on-policy": ({"on_policy": 1.0, "answer_tokens": 6}, {"TR-GRAD-001", "TR-GRAD-002", "TR-GRAD-003"}),
}
"""The settings of each kind, and the claims that it must have an occasion for, in addition to those of every kind."""
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
        words = word_tokenizer()
        write_causal(directory / "teacher", words, 32, torch.bfloat16)
        write_causal(directory / "student", words, 16, torch.float32, tie_word_embeddings=True)
        (directory / "chats.jsonl").write_text("\n".join(map(json.dumps, conversations(0))))
        paths = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "data_cache": "cache"}
        options |= {name: directory / path for name, path in paths.items()} | {"length": 40}
    lines = reference_trainer.Lines(io.StringIO())
    with observe.recording(directory / "observed"):
        subject.distill(reference_trainer.Settings(**options), lines=lines)


def falsify_claims_about_every_run_hold(run: Any) -> None:
    records = judge(read_folder(run.directory / "observed", complete=True))
    assert {name: record.explanation for name, record in records.items() if record.proofs} == {}
    untried = sorted(name for name in EVERY_KIND | KINDS[run.arguments["kind"]][1] if not records[name].tried)
    assert not untried, f"the run has no occasion for the claims {untried}"
