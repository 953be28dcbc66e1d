"""Attacks on the files that a failed export leaves, and on the versions. The subject is `storage.export`."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

import reference_trainer
from falsifiers.support.small_runs import run, small
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.files import atomic_write

FILES = ["model.safetensors", "config.json", "manifest.json"]
FAULTS: dict[str, tuple[Exception | None, str]] = {
    "a full disk": (OSError(28, "No space left on device", ".partial"), "No space left on device"),
    "an error without a number": (OSError("the share is gone"), "the share is gone"),
    "an error of the library": (SafetensorError("no such dtype"), "no such dtype"),
    "a removed directory": (None, "No such file or directory"),
}


def _decoder(value: float, layers: int = 1, width: int = 4) -> Any:
    decoder = Decoder(DecoderConfig(vocab_size=3, layers=layers, width=width, heads=1))
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


def falsify_failed_export_leaves_no_manifest(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, out = Path(name), Path(name, "out")
        run(subject, small(directory, out=out))
        (out / "config.json").unlink()
        (out / "config.json").mkdir()  # nothing can be put in its place
        try:
            run(subject, small(directory, out=out, force=True, seed=1))
        except OSError as error:
            assert str(out / "config.json") in str(error), f"the error does not name the file: {error}"
        else:
            raise AssertionError("a model whose configuration could not be written is reported as written")
        assert not (out / "manifest.json").exists(), "the older model's manifest is left beside the new weights"


def falsify_versions_are_those_in_use(subject: Any) -> None:
    expected = {
        "reference_trainer": reference_trainer.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    assert subject.versions() == expected, f"the versions are {subject.versions()}; expected {expected}"


@given(layers=st.integers(1, 8), width=st.sampled_from([2, 16, 64]), dtype=st.sampled_from([torch.half, torch.double]))
def falsify_estimated_size_is_sufficient(subject: Any, layers: int, width: int, dtype: torch.dtype) -> None:
    decoder = _decoder(1.0, layers, width).to(dtype)
    with tempfile.TemporaryDirectory() as name:
        subject.save_decoder(decoder, Path(name), {"of": "a small manifest"})
        taken = sum(len(content) for content in _held(Path(name)).values())
    asked = subject.exported_bytes(decoder)
    assert taken <= asked <= taken + 65536, f"{asked} bytes are estimated and {taken} written; expected 0 to 65536 more"
