"""The errors of a decoder's shape."""

from typing import Any

import pytest

from reference_trainer.errors import SettingError
from reference_trainer.models.decoder import DecoderConfig


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"layers": 0}, "layers"),
        ({"heads": 2}, "width"),
        ({"width": 12, "heads": 4}, "width"),
        ({"width": -8}, "width"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"heads": True}, "heads"),
        ({"width": 8.0}, "width"),
    ],
)
def test_refused_shape_error_names_field(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingError, match=f"'{named}'"):
        DecoderConfig(**{"vocab_size": 5, "layers": 1, "width": 6, "heads": 1, **changed})
