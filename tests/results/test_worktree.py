"""The changes of a working tree have one digest, whichever files a validation leaves behind."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.results.worktree import edits
from pv.source.project import find_project
from tests.support.projects import write


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=root, check=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = dict.fromkeys(("own.py", "data.txt", "evidence/c.cuda.json"), "1\n")
    write(tmp_path, {**files, "pyproject.toml": "[tool.pv]\n"})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "m")
    return tmp_path


def test_a_tree_without_changes_or_with_reports_and_evidence_only_has_none(tree: Path) -> None:
    assert edits(find_project(tree)) == ""
    (tree / "results.json").write_text("{}")
    (tree / "evidence/c.cuda.json").write_text("2\n")
    assert edits(find_project(tree)) == ""


CHANGES: dict[str, Callable[[Path], object]] = {
    "tracked source": lambda tree: (tree / "own.py").write_text("2\n"),
    "tracked data": lambda tree: (tree / "data.txt").write_text("2\n"),
    "new source": lambda tree: (tree / "new.py").write_text("2\n"),
    "new contract": lambda tree: (tree / "new.yaml").write_text("2\n"),
    "removed": lambda tree: (tree / "own.py").unlink(),
    "renamed": lambda tree: git(tree, "mv", "own.py", "other.py"),
}


def test_each_change_has_a_digest_of_its_own(tree: Path) -> None:
    found = []
    for change in CHANGES.values():
        change(tree)
        found.append(edits(find_project(tree)))
        git(tree, "reset", "-q", "--hard")
        git(tree, "clean", "-qfd")
    assert edits(find_project(tree)) == ""
    assert all(found) and len(set(found)) == len(CHANGES)
