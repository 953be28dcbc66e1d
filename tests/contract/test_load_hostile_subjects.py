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


@pytest.mark.parametrize("source", ["def double(:\n", "x = " + "-" * 20_000 + "1", "x = '\0'"])
def test_a_subject_that_is_no_python_is_a_finding(
    source: str, tmp_path: Path, write: Write, problems: Problems
) -> None:
    project = small_project(tmp_path, tiny=source)
    found = problems(write(GOOD), project)
    assert [finding.code for finding in found] == ["PV135"]
    assert "tiny.py is no valid Python" in found[0].message
