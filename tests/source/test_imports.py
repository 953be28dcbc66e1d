"""The files and libraries that code consists of follow from its import statements."""

from pathlib import Path

import pytest

from pv.source import imports
from pv.source.project import Project, find_project

FILES = {
    "pkg/__init__.py": "import yaml.nodes",
    "pkg/a.py": "from .b import value\nfrom . import c\nfrom numpy import linalg as algebra",
    "pkg/b.py": "def f():\n    import pkg.sub.deep, json",
    "pkg/c.py": "import typing\nif typing.TYPE_CHECKING:\n    import pkg.unused, torch\nelse:\n    import attr",
    "pkg/sub/deep.py": "from ..a import algebra\nfrom pkg import a",
    "pkg/unused.py": "import pandas",
}


@pytest.fixture
def tree(tmp_path: Path) -> Project:
    (tmp_path / "pyproject.toml").write_text("[tool.pv]\n")
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return find_project(tmp_path)


def test_the_closure_has_every_file_that_may_run(tree: Project) -> None:
    files, foreign = imports.closure(tree, [tree.root / "pkg/a.py"])
    shown = {path.relative_to(tree.root).as_posix() for path in files}
    assert shown == {"pkg/__init__.py", "pkg/a.py", "pkg/b.py", "pkg/c.py", "pkg/sub/deep.py"}
    assert foreign == {"yaml", "numpy", "json", "typing", "attr"}


def test_package_of_the_project_is_not_foreign_where_one_of_its_modules_is_missing(tree: Project) -> None:
    (tree.root / "spread").mkdir()
    (tree.root / "spread/core.py").write_text(
        "try:\n    from spread import _fast\nexcept ImportError:\n    import json"
    )
    files, foreign = imports.closure(tree, [tree.root / "spread/core.py"])
    assert (files, foreign) == ({tree.root / "spread/core.py"}, {"json"})
