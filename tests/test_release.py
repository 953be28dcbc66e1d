"""A release is refused unless version, changelog, citation and pages agree; workflows run scripts that exist."""

import re
import runpy
import shutil
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import pv
import reference_trainer

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def script(name: str) -> Any:
    return SimpleNamespace(**runpy.run_path(str(ROOT / f".ci/{name}.py")))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that name the version."""
    notes = script("notes")
    named = ("pv/__init__.py", "reference_trainer/__init__.py", "CITATION.cff", "CHANGELOG.md", "pyproject.toml")
    for name in (*named, *notes.NAMING_THE_ACTION):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_both_packages_have_the_version_that_is_installed() -> None:
    assert pv.__version__ == reference_trainer.__version__ == version("pv-contracts")


def test_this_version_is_ready_but_for_the_owner(clone: Path) -> None:
    notes = script("notes")
    assert notes.problems(clone, "") == []
    assert notes.notes(clone, pv.__version__).count("\n### ") >= 3
    assert all("replace OWNER/pv" in line for line in notes.problems(clone, f"v{pv.__version__}"))
    assert "the tag v9.9 is not" in notes.problems(clone, "v9.9")[0]
    readme = clone / "README.md"
    readme.write_text(readme.read_text() + "uses: OWNER/pv\n")
    assert "README.md: replace OWNER/pv by the repository" in notes.problems(clone, f"v{pv.__version__}")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("reference_trainer/__init__.py", pv.__version__, "9.9", "reference_trainer/__init__.py: its version"),
        ("CITATION.cff", f"version: {pv.__version__}", "version: 9.9", "CITATION.cff: its version"),
        ("CHANGELOG.md", f"## {pv.__version__} (", "## 9.9 (", "CHANGELOG.md: the newest dated section"),
        ("README.md", f"@v{pv.__version__}", "@main", "README.md: names the action @main"),
    ],
)
def test_file_with_another_version_is_named(clone: Path, name: str, old: str, new: str, message: str) -> None:
    text = (clone / name).read_text()
    assert old in text
    (clone / name).write_text(text.replace(old, new))
    (problem,) = script("notes").problems(clone, "")
    assert problem.startswith(message)


def test_contents_name_files_that_are_missing_or_too_many() -> None:
    contents = script("contents")
    paths = (path for name in contents.PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    files = {path.relative_to(ROOT).as_posix() for path in paths}
    assert contents.differences("w", files, files) == []
    lost = next(name for name in files if name.endswith("model.safetensors"))
    differences = contents.differences("w", (files - {lost}) | {"tests/corpus/a.yaml"}, files)
    assert differences == [
        f"w: missing {lost}",
        "w: unexpected tests/corpus/a.yaml",
        "w: no file matches reference_trainer/data/teacher/model.safetensors",
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_least_rights_limits_and_scripts_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name in re.findall(r"\.ci/\w+", path.read_text()):
        assert (ROOT / name).exists(), f"{path.name}: {name}"
