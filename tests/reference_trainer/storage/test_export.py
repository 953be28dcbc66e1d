"""Messages of a failed export, and the size that is asked of a disk beforehand."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from reference_trainer.errors import OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.export import CONFIG, MANIFEST, WEIGHTS, exported_bytes, save_decoder
from reference_trainer.storage.files import atomic_write

FILES = (WEIGHTS, CONFIG, MANIFEST)
FAULTS = {
    "No space left on device": OSError(28, "No space left on device", ".partial"),
    "the share is gone": OSError("the share is gone"),
    "no such dtype": SafetensorError("no such dtype"),
}


def decoder(layers: int = 1, width: int = 4) -> Decoder:
    return Decoder(DecoderConfig(vocab_size=3, layers=layers, width=width, heads=1))


@pytest.mark.parametrize("cause", FAULTS)
@pytest.mark.parametrize("failing", FILES)
def test_failed_export_names_file_and_cause(tmp_path: Path, failing: str, cause: str) -> None:
    def write(path: Path, content: Callable[[Path], object]) -> None:
        if path.name == failing:
            raise FAULTS[cause]
        atomic_write(path, content)

    with pytest.raises(OutputError) as raised:
        save_decoder(decoder(), tmp_path, {}, write_file=write)
    assert str(raised.value) == f"cannot write {tmp_path / failing}: {cause}"


@pytest.mark.parametrize("failing", FILES)
def test_directory_removed_during_an_export_is_named(tmp_path: Path, failing: str) -> None:
    """The error is that of the write, not of the clean-up."""
    directory = tmp_path / "out"
    directory.mkdir()
    save_decoder(decoder(), directory, {})

    def write(path: Path, content: Callable[[Path], object]) -> None:
        if path.name == failing:
            shutil.rmtree(directory)
        atomic_write(path, content)

    with pytest.raises(OutputError) as raised:
        save_decoder(decoder(), directory, {}, write_file=write)
    assert str(directory / failing) in str(raised.value)


@pytest.mark.parametrize("dtype", [torch.half, torch.double])
@pytest.mark.parametrize(("layers", "width"), [(1, 2), (3, 16), (8, 64)])
def test_estimated_size_is_sufficient(tmp_path: Path, layers: int, width: int, dtype: torch.dtype) -> None:
    """At least the bytes that an export takes on the disk, and at most 64 KiB more."""
    model = decoder(layers, width).to(dtype)
    save_decoder(model, tmp_path, {"of": "a small manifest"})
    taken = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert taken <= exported_bytes(model) <= taken + 65536
