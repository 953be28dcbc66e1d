"""An attack on runs whose teacher has another vocabulary. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import reference_trainer
from falsifiers.support.small_runs import refused, run, small
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.export import save_decoder

BYTES, LENGTH = 256, 8
CASES = [(300, "truncate"), (200, "truncate-student"), (200, "pad"), (256, "pad"), (300, "pad")]


def _teacher(directory: Path, vocabulary: int, seed: int) -> Path:
    """Write a teacher with this vocabulary."""
    config = DecoderConfig(vocab_size=vocabulary, layers=1, width=16, heads=1)
    (directory / "teacher").mkdir()
    save_decoder(new_decoder(config, seed).double(), directory / "teacher", {"config": asdict(config)})
    return directory / "teacher"


def _shared(student: Tensor, teacher: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of both over the shared vocabulary."""
    size = max(student.shape[-1], teacher.shape[-1])
    if mode != "pad":
        size = min(student.shape[-1], teacher.shape[-1])
    padded = [
        torch.cat((each, each.new_full((*each.shape[:-1], size), -math.inf)), -1)[..., :size]
        for each in (student, teacher)
    ]
    return padded[0].log_softmax(-1), padded[1].log_softmax(-1)


@given(seed=st.integers(0, 9))
def falsify_a_run_shares_the_vocabulary_as_named(subject: Any, seed: int) -> None:
    for vocabulary, mode in CASES:
        _assert_run(subject, vocabulary, mode, seed)


def _assert_run(subject: Any, vocabulary: int, mode: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = {"teacher": _teacher(directory, vocabulary, seed), "out": directory / "out", "dtype": "float64"}
        if vocabulary != BYTES:
            said = refused(subject, small(directory, **{**settings, "out": directory / "refused"}))
            assert "--share-vocabulary" in said, f"without a mode a teacher of {vocabulary} tokens gives {said!r}"
        made = small(directory, **settings, share_vocabulary=mode)
        result = run(subject, made)
        text = (directory / "text").read_bytes()[90:]
        manifest = json.loads((directory / "out" / "manifest.json").read_text(), parse_constant=_refuse)
        again = reference_trainer.load_decoder(directory / "out")
    assert manifest["settings"]["share_vocabulary"] == mode, f"the manifest names {manifest['settings']}"
    expected = _expected(again, result.teacher, text, mode)
    for metric, value in expected.items():
        seen, what = result.held_back[metric].sum, f"{metric} with a teacher of {vocabulary} tokens and {mode!r}"
        assert seen == value or math.isclose(seen, value, rel_tol=1e-10, abs_tol=1e-12), (
            f"{what} is {seen}; expected {value}"
        )
        written = float(manifest["held_back"][metric]["sum"])
        assert written == seen, f"{what} is written as {written}; measured was {seen}"


def _refuse(constant: str) -> float:
    raise AssertionError(f"the manifest has {constant}, which is not JSON")


def _expected(student: Any, teacher: Any, text: bytes, mode: str) -> dict[str, float]:
    count = (len(text) - 1) // (LENGTH - 1)
    tokens = torch.tensor([list(text[k * (LENGTH - 1) :][:LENGTH]) for k in range(count)])
    with torch.no_grad():
        log_q, log_p = _shared(student(tokens)[:, :-1], teacher(tokens)[:, :-1], mode)
    hard = -log_q.gather(-1, tokens[:, 1:, None]).sum()
    terms = torch.where(log_p > -math.inf, log_p.exp() * (log_p - log_q), 0.0)
    return {"hard_loss": float(hard), "kl_at_1": float(terms.sum())}
