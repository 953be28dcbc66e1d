"""A run leaves its arguments, its result and its trace in a directory, from which predicates read them."""

import re
from pathlib import Path

import pytest
import torch

from pv.engines import reference_run


def test_second_attempt_starts_with_an_empty_directory(tmp_path: Path) -> None:
    stale = tmp_path / "run" / "files" / "stale.bin"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"s")
    reference_run.execute(lambda *_, **__: {}, "s", device="cpu", directory=tmp_path / "run", arguments={"steps": 0})
    assert not stale.exists()


NOT_JSON = {
    "result is a object, which JSON does not have: return text, numbers, booleans, None, lists": object(),
    "result['loss'] is a Tensor, which JSON does not have: return `result['loss'].item()`": {"loss": torch.tensor(1.0)},
    "result['parts'][1] is a Tensor, which JSON does not have: return `result['parts'][1].tolist()`": {
        "parts": [1, torch.ones(2)]
    },
    "result['seen'] is a set, which JSON does not have: return `sorted(result['seen'])`": {"seen": {1, 2}},
}


@pytest.mark.parametrize("says", NOT_JSON)
def test_result_that_is_not_json_names_the_value_and_what_to_return(tmp_path: Path, says: str) -> None:
    result = NOT_JSON[says]
    with pytest.raises(TypeError, match=re.escape(says)):
        reference_run.execute(lambda *_, **__: result, "s", device="cpu", directory=tmp_path / "run", arguments={})
    assert not (tmp_path / "run" / reference_run.RESULT).exists()
