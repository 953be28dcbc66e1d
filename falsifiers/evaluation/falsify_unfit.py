"""Attacks on what an evaluation says of unfit models. The subject is `reference_trainer.pipeline.saved_models`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.evaluation.models import TOKENS, checkpoint, chosen, model
from falsifiers.support.oracles import refusal_complaint
from reference_trainer.errors import TrainerError
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint


@given(unfit=st.lists(st.booleans(), min_size=1, max_size=4))
def falsify_models_beside_an_unfit_one_are_evaluated(subject: Any, unfit: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths = [directory / f"missing-{n}" if bad else model(directory, n) for n, bad in enumerate(unfit)]
        seen, errors = list[list[str]](), list[Exception]()
        subject.evaluate_saved(
            paths,
            chosen(directory, bytes(range(TOKENS)) * 2),
            done=lambda evaluation: seen.append(subject.table(evaluation)),
            unfit=errors.append,
        )
    fit = [str(path) for path, bad in zip(paths, unfit, strict=True) if not bad]
    assert [rows[-1].split()[0] for rows in seen] == fit, f"evaluated are {[rows[-1] for rows in seen]}; expected {fit}"
    assert all(rows[:-1] == seen[-1][: len(rows) - 1] for rows in seen), f"a line of the table changes: {seen}"
    assert len(errors) == sum(unfit), f"{sum(unfit)} models are missing, and the errors are {errors}"


def _changed(path: Path) -> None:
    """Change a byte of the largest file, in its last tensor."""
    largest = max(path.iterdir(), key=lambda each: each.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-2] ^= 1
    largest.write_bytes(content)


def _damaged_model(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = model(directory, 1)
    _changed(path)
    return path, {}


def _damaged_checkpoint(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = checkpoint(directory, 1)
    _changed(path)
    return path, {}


def _of_an_own_model(directory: Path) -> tuple[Path, dict[str, Any]]:
    content = Manifest(run_id="student", step=1, conditions={}, state={})
    return save_checkpoint(directory, content, {"student.w": torch.ones(2)}), {}


WRONG: dict[str, tuple[Callable[[Path], tuple[Path, dict[str, Any]]], str]] = {
    "a changed model": (_damaged_model, "model-1"),
    "a changed checkpoint": (_damaged_checkpoint, "student-step1"),
    "a checkpoint of an own model": (_of_an_own_model, "no student of this package"),
    "a directory that is missing": (lambda directory: (directory / "missing", {}), "missing"),
    "too few tokens": (lambda directory: (model(directory, 1, TOKENS - 1), {}), "byte 39, and "),
    "logits that are not finite": (lambda directory: (model(directory, 1, broken=True), {}), "model-1"),
    "a teacher of more tokens": (
        lambda directory: (model(directory, 1), {"teacher": model(directory, 2, TOKENS + 1)}),
        "in the evaluation of",
    ),
    "less than a sequence": (lambda directory: (model(directory, 1), {"length": 9}), "at least 81"),
}
"""What is evaluated, with settings, and a word of the refusal."""


def _noted(call: Callable[[], Any]) -> Any:
    """Return what a call returns; its error has its notes in the message, as a command prints it."""
    try:
        return call()
    except TrainerError as error:
        raise TrainerError("; ".join([str(error), *getattr(error, "__notes__", [])])) from error


def falsify_unfit_model_has_no_numbers(subject: Any) -> None:
    for kind, (make, word) in WRONG.items():
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            path, others = make(directory)
            settings = chosen(directory, bytes(range(TOKENS)) * 2, **others)
            paths = [model(directory, 9), path]
            call = partial(subject.evaluate_saved, paths, settings)
            wrong = refusal_complaint(kind, partial(_noted, call), word, kind=TrainerError)
            assert wrong is None, wrong
