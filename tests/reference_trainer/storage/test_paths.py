"""Paths in JSON files, and in the manifest of a run."""

import io
import json
import os
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest

from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill
from reference_trainer.storage.paths import path_in_json
from reference_trainer.training.lines import Lines

TINY = {"layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "teacher_steps": 1, "length": 8}
NOT_UTF_8 = [b"\xff", b"caf\xe9", b"%FF\xff \\xff", b"\xed\xa0\x80", b"\xf0\x9f"]
"""Latin-1, an encoded surrogate, a character cut off, and one beside what looks like its own escape."""


@pytest.mark.parametrize("name", ["text", "a/b c", "%FF", "é", "/"])
def test_path_of_characters_is_its_text(name: str) -> None:
    assert path_in_json(Path(name)) == name


@pytest.mark.parametrize("name", NOT_UTF_8)
def test_path_that_is_not_utf_8_is_percent_encoded(name: bytes) -> None:
    path = Path(os.fsdecode(name))
    assert path_in_json(path) == {"percent_encoded": quote_from_bytes(name)}


@pytest.mark.parametrize("name", NOT_UTF_8)
@pytest.mark.parametrize("part", ["data", "out", "teacher_cache", "trace"])
def test_manifest_is_unicode_and_holds_the_bytes_of_every_path(tmp_path: Path, part: str, name: bytes) -> None:
    """A path of ordinary characters stays a string, so that the two forms cannot be confused."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    paths = {"data": tmp_path / "text", "out": tmp_path / "out", "teacher_cache": tmp_path / "cache", part: path}
    paths["data"].write_bytes(bytes(range(100)))
    distill(Settings(**TINY, **paths, batch_size=4, epochs=1, device="cpu"), lines=Lines(io.StringIO()))
    written = json.loads((paths["out"] / "manifest.json").read_bytes().decode("utf-8"))["settings"]
    json.dumps(written, ensure_ascii=False).encode("utf-8")  # raises for characters that are not Unicode
    expected = {each: str(value) for each, value in paths.items()}
    expected[part] = {"percent_encoded": quote_from_bytes(os.fsencode(path))}
    assert {each: written[each] for each in paths} == expected
