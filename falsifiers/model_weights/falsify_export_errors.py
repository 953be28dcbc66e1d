"""Attacks on the files that a failed export leaves. The subject is `storage.export`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

import reference_trainer
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.files import atomic_write

FILES = ["model.safetensors", "config.json", "manifest.json"]
FAULTS: dict[str, tuple[Exception | None, str]] = {
    "a full disk": (OSError(28, "No space left on device", ".partial"), "No space left on device"),
    "an error of the library": (SafetensorError("no such dtype"), "no such dtype"),
    "a removed directory": (None, "No such file or directory"),
}


def _decoder(value: float) -> Any:
    decoder = Decoder(DecoderConfig(vocab_size=3, layers=1, width=4, heads=1))
    for parameter in decoder.parameters():
        parameter.data.fill_(value)
    return decoder


def _held(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()} if directory.exists() else {}


@given(failing=st.sampled_from(FILES), kind=st.sampled_from(list(FAULTS)), older=st.booleans())
def falsify_failed_export_leaves_no_new_file(subject: Any, failing: str, kind: str, older: bool) -> None:
    fault, cause = FAULTS[kind]

    def write(path: Path, content: Callable[[Path], object]) -> None:
        if path.name == failing and fault is None:
            shutil.rmtree(path.parent)
        elif path.name == failing and fault is not None:
            raise fault
        atomic_write(path, content)

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "out")
        directory.mkdir()
        if older:
            subject.save_decoder(_decoder(1.0), directory, {})
        before = _held(directory)
        said = _refusal(subject, directory, write)
        left = _held(directory)
        named = str(directory / failing) in said and cause in said
        assert named, f"with {kind} at {failing} the error names another file or cause: {said!r}"
    odd = [each for each, content in left.items() if each == "manifest.json" or before.get(each) != content]
    assert not odd, f"with {kind} at {failing}, {odd} of the new model, or a manifest, is left"


def _refusal(subject: Any, directory: Path, write: Callable[[Path, Callable[[Path], object]], None]) -> str:
    try:
        subject.save_decoder(_decoder(2.0), directory, {}, write_file=write)
    except reference_trainer.OutputError as error:
        return str(error)
    raise AssertionError("an export that could not be written is reported as done")
