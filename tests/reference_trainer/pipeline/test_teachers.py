"""The lines and messages about the teacher of a run: training, cache, and directories without a model."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.config.settings import Settings
from reference_trainer.data.text import Sequences
from reference_trainer.errors import ModelFileError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.pipeline.teachers import cached_or_trained, load_teacher
from reference_trainer.storage.export import CONFIG, MANIFEST, WEIGHTS, save_decoder

TINY = {"length": 8, "batch_size": 2, "teacher_layers": 1, "teacher_width": 16, "teacher_steps": 2, "warmup": 1}
TRAINED = "teacher: training one for {steps} steps on the same text (use --teacher PATH for your own)"


class Failing(Callback):
    def on_step_end(self, context: Context) -> None:
        raise KeyboardInterrupt


def fetch(cache: Path, *callbacks: Callback, **others: Any) -> list[str]:
    """Return the lines of output of a teacher on a text of 60 bytes."""
    settings = Settings(teacher_cache=cache, **{**TINY, **others})
    text = torch.arange(60, dtype=torch.uint8)
    sequences = Sequences(bytes_N=text, length=8, batch_size=2, device=torch.device("cpu"))
    said: list[str] = []
    cached_or_trained(settings, sequences, "d", callbacks, said.append, lambda decoder: decoder)
    return said


def test_training_and_caching_are_logged(tmp_path: Path) -> None:
    first = fetch(tmp_path)
    (directory,) = tmp_path.iterdir()
    assert first == [TRAINED.format(steps=2), f"teacher: kept in {directory}"]
    assert fetch(tmp_path) == [f"teacher: {directory}"]


def test_error_while_training_a_teacher_names_the_teacher(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        fetch(tmp_path, Failing())
    assert "while training the teacher" in raised.value.__notes__


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda d: (d / WEIGHTS).unlink(), "cannot read"),
    "weights cut off": (lambda d: os.truncate(d / WEIGHTS, 100), "cannot read"),
    "another kind": (lambda d: (d / CONFIG).write_text('{"model_type": "llama"}'), "invalid model_type 'llama'"),
    "no JSON": (lambda d: (d / CONFIG).write_bytes(b"\xff{"), "cannot read"),
    "an unknown key": (lambda d: replace_in(d / CONFIG, '"layers"', '"experts"'), "experts"),
    "another shape": (lambda d: replace_in(d / CONFIG, '"layers": 1', '"layers": 2'), "does not match"),
}


def replace_in(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("kind", UNFIT)
def test_directory_without_a_valid_model_is_refused_with_the_reason(tmp_path: Path, kind: str) -> None:
    spoil, reason = UNFIT[kind]
    fetch(tmp_path)
    (directory,) = tmp_path.iterdir()
    spoil(directory)
    with pytest.raises(ModelFileError) as raised:
        load_teacher(directory)
    assert str(directory) in str(raised.value) and reason in str(raised.value)


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    decoder = Decoder(DecoderConfig(vocab_size=256, layers=1, width=4, heads=1))
    decoder.norm.weight.data[3] = float("nan")
    save_decoder(decoder, tmp_path, {})
    with pytest.raises(ModelFileError, match=r"norm\.weight has values that are not finite"):
        load_teacher(tmp_path)
    assert (tmp_path / MANIFEST).exists()
