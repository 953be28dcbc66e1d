"""Messages of a failed export."""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from reference_trainer.errors import OutputError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.export import CONFIG, MANIFEST, WEIGHTS, save_decoder
from reference_trainer.storage.files import atomic_write

FILES = (WEIGHTS, CONFIG, MANIFEST)
FAULTS = {
    "No space left on device": OSError(28, "No space left on device", ".partial"),
    "no such dtype": SafetensorError("no such dtype"),
}


def decoder() -> Decoder:
    return Decoder(DecoderConfig(vocab_size=3, layers=1, width=4, heads=1))


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
