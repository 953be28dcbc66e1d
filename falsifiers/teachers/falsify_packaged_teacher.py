"""Attacks on the packaged teacher: its files, its note, which is its manifest, and the runs that use it."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import reference_trainer
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support.small_runs import SMALL, run
from falsifiers.teachers.cases import bits_of

DATA = Path(__file__).parents[2] / "reference_trainer" / "data"
EVERY = 16
"""Of the sequences of the training part; all of the held-back ones are scored."""


def _note() -> dict[str, Any]:
    note: dict[str, Any] = json.loads((DATA / "teacher" / "manifest.json").read_text())
    return note


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _loss(note: dict[str, Any], part: bytes, every: int = 1) -> tuple[float, int]:
    """Return the sum of the cross-entropy of every so many sequences in nats, in float64, and of how many bytes."""
    length, heads = note["settings"]["length"], note["settings"]["width"] // 32
    count = (len(part) - 1) // (length - 1)
    tokens = np.array([list(part[k * (length - 1) :][:length]) for k in range(0, count, every)])
    weights = oracle.weights_in(DATA / "teacher")
    logits = ((oracle.logits(weights, heads, some), some) for some in oracle.chunks(tokens))
    return math.fsum(oracle.losses(each, each, some)[0] for each, some in logits), tokens[:, 1:].size


def falsify_packaged_teacher_is_what_its_note_says(subject: Any) -> None:
    note, text = _note(), (DATA / "corpus" / "python-topics.txt").read_bytes()
    loaded = bits_of(subject.load_teacher(subject.PACKAGED))
    given = bits_of(reference_trainer.load_decoder(DATA / "teacher"))
    assert loaded == given, "the teacher that a run loads has other weights than the packaged file"
    for name, digest in note["sha256"].items():
        assert _sha256(DATA / "teacher" / name) == digest, f"{name} has another digest than its manifest, {digest}"
    trained_on = {"data_sha256": hashlib.sha256(text).hexdigest(), "kd_weight": 0, "ce_weight": 1, "data": None}
    seen = {name: note["settings"].get(name, note.get(name)) for name in trained_on}
    assert seen == trained_on, f"the teacher was trained with {seen}; expected {trained_on}"
    cut = len(text) - -(-len(text) // 10)
    (total, count), recorded = _loss(note, text[cut:]), note["held_back"]["hard_loss"]
    assert recorded["count"] == count, f"the note counts {recorded['count']} held-back bytes; there are {count}"
    mean, noted = total / count, recorded["sum"] / count
    assert math.isclose(mean, noted, abs_tol=1e-5), f"its held-back loss is {mean} nats per byte; the note has {noted}"
    known, bytes_known = _loss(note, text[:cut], EVERY)
    assert known / bytes_known < mean - 0.05, (
        f"it knows the held-back text ({mean}) like its own ({known / bytes_known})"
    )


def falsify_default_run_uses_packaged_teacher(subject: Any) -> None:
    own = {name: SMALL[name] for name in ("layers", "width", "teacher_layers", "teacher_width", "device")}
    with tempfile.TemporaryDirectory() as name:
        paths = {"out": Path(name) / "out", "teacher_cache": Path(name) / "cache"}
        result = run(subject, reference_trainer.Settings(**own, **paths, smoke=1))
    expected = bits_of(reference_trainer.load_decoder(DATA / "teacher"))
    assert bits_of(result.teacher) == expected, "without a text or teacher of its own, a run has another teacher"
