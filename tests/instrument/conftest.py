"""A folder with a small subject to plant mutants in."""

from pathlib import Path

import pytest

from tests.instrument.programs import OTHER, SUBJECT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "subject.py").write_text(SUBJECT, encoding="utf-8")
    (tmp_path / "other.py").write_text(OTHER, encoding="utf-8")
    return tmp_path
