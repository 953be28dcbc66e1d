"""Attacks on the loading of a model from damaged files. The subject is `storage.export`, or has its names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from reference_trainer.models.decoder import Decoder, DecoderConfig

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _not_finite(path: Path) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = float("nan")
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


def reconfigure(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


UNFIT: dict[str, Callable[[Path], object]] = {
    "no directory": lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()],
    "weights cut in half": lambda d: os.truncate(d / WEIGHTS, (d / WEIGHTS).stat().st_size // 2),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "weights of another shape": lambda d: reconfigure(d / CONFIG, width=32),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "an unknown setting": lambda d: reconfigure(d / CONFIG, experts=8),
    "a configuration that is not an object": lambda d: (d / CONFIG).write_text("[]"),
    "NaN weights": lambda d: _not_finite(d / WEIGHTS),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_invalid_model_is_refused(subject: Any, kind: str) -> None:
    with scratch() as root:
        directory = root / "model"
        directory.mkdir()
        subject.save_decoder(Decoder(DecoderConfig(vocab_size=8, layers=1, width=16, heads=1)), directory, {})
        assert subject.load_decoder(directory).config.width == 16, "a model that was just written is another one"
        subject.verify_manifest(directory)
        UNFIT[kind](directory)
        assert_refused(f"{kind}, by its manifest", lambda: subject.verify_manifest(directory), str(directory))
        assert_refused(kind, lambda: subject.load_decoder(directory), str(directory))
