"""Distillations that are as small as possible, and the files that they leave."""

import hashlib
import io
from pathlib import Path
from typing import Any

import reference_trainer
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.export import save_decoder

SMALL: dict[str, Any] = {"layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "teacher_steps": 1}
SMALL |= {"length": 8, "batch_size": 4, "epochs": 1, "save_every": 0, "device": "cpu"}
SMALL |= {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}


def small(directory: Path, **others: Any) -> Any:
    """Settings of a run of three steps on a text of 100 bytes in `directory`."""
    path = directory / "text"
    path.write_bytes(bytes(range(100)))
    return reference_trainer.Settings(**{**SMALL, "data": path, "teacher_cache": directory / "cache", **others})


def run(subject: Any, settings: Any, **others: Any) -> Any:
    """Return the result of a run without its output."""
    return subject.distill(settings, lines=reference_trainer.Lines(io.StringIO()), **others)


def written_model(directory: Path, tokens: int = 256, seed: int = 0) -> Path:
    """Write a decoder of the size of those of `SMALL`, and return its directory."""
    config = DecoderConfig(vocab_size=tokens, layers=1, width=16, heads=1)
    (directory / "teacher").mkdir()
    save_decoder(new_decoder(config, seed), directory / "teacher", {})
    return directory / "teacher"


def found(directory: Path) -> dict[str, str]:
    """Return every file and directory below, with the digest of its content."""
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "a directory"
        for p in sorted(directory.rglob("*"))
    }


def refused(subject: Any, settings: Any, **others: Any) -> str:
    """Return the message of a refused run; empty if it is accepted."""
    try:
        run(subject, settings, **others)
    except (OSError, ValueError) as error:
        return str(error)
    return ""
