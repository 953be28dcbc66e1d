"""Models whose weights a function of the caller reads."""

from pathlib import Path

import pytest

from reference_trainer.errors import ModelFileError
from reference_trainer.storage.whole_weights import read_model


@pytest.mark.parametrize("content", [b'{"result": ', b"\xff", b"[]", b'{"result": {}}', b'{"step": "last"}'])
def test_manifest_without_a_step_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"manifest\.json names no step"):
        read_model(tmp_path, load=lambda path: {})
