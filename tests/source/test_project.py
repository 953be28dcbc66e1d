"""The `[tool.pv]` table is found from any folder of a project, and refused where it is malformed."""

from pathlib import Path

import pytest

from pv.errors import ProjectError
from pv.source.project import find_project


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pv]\nroots = ["src"]\nevidence = "kept"\n')
    below = tmp_path / "src" / "package"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    project = find_project(below)
    assert (project.root, project.declared) == (tmp_path, True)
    assert project.roots == (tmp_path / "src",)
    assert project.contracts == (tmp_path / "contracts",)
    assert project.evidence == tmp_path / "kept"


def test_without_a_table_the_folder_is_the_project(tmp_path: Path) -> None:
    project = find_project(tmp_path)
    assert (project.root, project.roots, project.declared) == (tmp_path, (tmp_path,), False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool]\npv = 1\n", "must be a table"),
        ("[tool.pv]\nroot = ['.']\n", "no key 'root'"),
        ("[tool.pv]\nroots = '.'\n", "roots must be a non-empty list of folders"),
        ("[tool.pv]\nroots = []\n", "roots must be a non-empty list of folders"),
        ("[tool.pv]\nroots = [1]\n", "roots must name folders, not 1"),
        ("[tool.pv]\nevidence = '../elsewhere'\n", "lies outside the project"),
        ("[tool.pv\n", "cannot be read"),
    ],
)
def test_a_malformed_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ProjectError, match=message):
        find_project(tmp_path)
