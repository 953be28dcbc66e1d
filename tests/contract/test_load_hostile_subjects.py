"""A subject is read whatever its source looks like, or is a finding."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Finding
from pv.source.project import Project, find_project

Write = Callable[[str | bytes], Path]
Problems = Callable[..., list[Finding]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")


def small_project(folder: Path, **sources: str) -> Project:
    (folder / "pyproject.toml").write_text("[tool.pv]\n")
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "falsifiers").mkdir()
    (folder / "falsifiers" / "falsify_tiny.py").write_text("import tiny\ndef falsify_double(subject): assert True\n")
    return find_project(folder)


def test_modules_that_import_each_other_are_linted(tmp_path: Path, write: Write, problems: Problems) -> None:
    double = "def double(number):\n    return number * 2\n"
    project = small_project(tmp_path, tiny=f"import other\n{double}", other="import tiny, other\n")
    assert problems(write(GOOD), project) == []


@pytest.mark.parametrize("source", ["def double(:\n", "x = " + "-" * 20_000 + "1", "x = '\0'"])
def test_a_subject_that_is_no_python_is_a_finding(
    source: str, tmp_path: Path, write: Write, problems: Problems
) -> None:
    project = small_project(tmp_path, tiny=source)
    found = problems(write(GOOD), project)
    assert [finding.code for finding in found] == ["PV135"]
    assert "tiny.py is no valid Python" in found[0].message


def test_a_subject_in_the_encoding_it_declares_is_read(tmp_path: Path, write: Write, problems: Problems) -> None:
    project = small_project(tmp_path)
    source = "# -*- coding: latin-1 -*-\nname = 'é'\ndef double(number):\n    return number * 2\n"
    (tmp_path / "tiny.py").write_bytes(source.encode("latin-1"))
    assert problems(write(GOOD), project) == []


def test_a_subject_behind_a_byte_order_mark_is_read(tmp_path: Path, write: Write, problems: Problems) -> None:
    project = small_project(tmp_path)
    (tmp_path / "tiny.py").write_bytes(b"\xef\xbb\xbfdef double(number):\n    return number * 2\n")
    assert problems(write(GOOD), project) == []
