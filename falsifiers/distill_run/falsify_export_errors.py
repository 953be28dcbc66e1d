"""Attacks on the errors of an export, its estimated size and its versions. The subject is `storage.export`."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

import reference_trainer

FILES = ["model.safetensors", "config.json", "manifest.json"]
FAULTS: dict[str, tuple[Exception, str]] = {
    "a full disk": (OSError(28, "No space left on device", ".partial"), "No space left on device"),
    "an error without a number": (OSError("the share is gone"), "the share is gone"),
    "an error of the library": (SafetensorError("no such dtype"), "no such dtype"),
}


def _decoder(subject: Any, value: float, layers: int = 1, width: int = 4) -> Any:
    decoder = subject.Decoder(subject.DecoderConfig(vocab_size=3, layers=layers, width=width, heads=1))
    for parameter in decoder.parameters():
        parameter.data.fill_(value)
    return decoder


def _with_writes(subject: Any, act: Callable[[Path, Callable[[], None]], None]) -> Any:
    """Patch the subject so that each write calls `act` with the path and the original write."""
    really = subject.atomic_write
    return mock.patch.object(subject, "atomic_write", lambda path, write: act(path, lambda: really(path, write)))


def _held(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()} if directory.exists() else {}


@given(failing=st.sampled_from(FILES), kind=st.sampled_from(list(FAULTS)), older=st.booleans())
def falsify_failed_export_is_named(subject: Any, failing: str, kind: str, older: bool) -> None:
    """The error names the file and the cause; no file of the new model and no manifest is left."""
    fault, cause = FAULTS[kind]

    def act(path: Path, write: Callable[[], None]) -> None:
        if path.name == failing:
            raise fault
        write()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if older:
            subject.save_decoder(_decoder(subject, 1.0), directory, {})
        before = _held(directory)
        said = _refusal(subject, directory, act)
        left = _held(directory)
    expected = f"cannot write {directory / failing}: {cause}"
    assert said == expected, f"with {kind} at {failing} the error is {said!r}; expected {expected!r}"
    odd = [each for each, content in left.items() if each == "manifest.json" or before.get(each) != content]
    assert not odd, f"with {kind} at {failing}, {odd} of the new model, or a manifest, is left"


def _refusal(subject: Any, directory: Path, act: Callable[[Path, Callable[[], None]], None]) -> str:
    try:
        with _with_writes(subject, act):
            subject.save_decoder(_decoder(subject, 2.0), directory, {})
    except OSError as error:
        assert isinstance(error, subject.OutputError), f"expected an OutputError, got {type(error).__name__}: {error}"
        return str(error)
    raise AssertionError("an export that could not be written is reported as done")


def falsify_removed_directory_is_named(subject: Any) -> None:
    """The directory is removed during the export: the error is that of the write, not of the clean-up."""
    for failing in FILES:

        def act(path: Path, write: Callable[[], None], failing: str = failing) -> None:
            if path.name == failing:
                shutil.rmtree(path.parent)
            write()

        with tempfile.TemporaryDirectory() as name:
            directory = Path(name, "out")
            directory.mkdir()
            subject.save_decoder(_decoder(subject, 1.0), directory, {})
            said = _refusal(subject, directory, act)
        assert str(directory / failing) in said, f"the directory of {failing} was removed, and the error is: {said}"


@given(layers=st.integers(1, 8), width=st.sampled_from([2, 16, 64]), dtype=st.sampled_from([torch.half, torch.double]))
def falsify_estimated_size_is_sufficient(subject: Any, layers: int, width: int, dtype: torch.dtype) -> None:
    """At least the bytes that an export takes on the disk, and at most 64 KiB more."""
    decoder = _decoder(subject, 1.0, layers, width).to(dtype)
    with tempfile.TemporaryDirectory() as name:
        subject.save_decoder(decoder, Path(name), {"of": "a small manifest"})
        taken = sum(len(content) for content in _held(Path(name)).values())
    asked = subject.exported_bytes(decoder)
    assert taken <= asked <= taken + 65536, (
        f"{asked} bytes are estimated and {taken} written; expected up to 65536 more"
    )


def falsify_versions_are_those_in_use(subject: Any) -> None:
    """Of the package, of torch and of Python."""
    expected = {
        "reference_trainer": reference_trainer.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    assert subject.versions() == expected, f"the versions are {subject.versions()}; expected {expected}"
