"""The changes of a working tree have one digest, whichever files a validation leaves behind."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pv.results.worktree import edits
from pv.source.project import find_project
from tests.support.processes import git
from tests.support.projects import write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = dict.fromkeys(("own.py", "data.txt", "evidence/c.cuda.json"), "1\n")
    write(tmp_path, {**files, "pyproject.toml": "[tool.pv]\n"})
    git("init", "-q", cwd=tmp_path)
    git("add", ".", cwd=tmp_path)
    git("commit", "-qm", "m", cwd=tmp_path)
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
    "renamed": lambda tree: git("mv", "own.py", "other.py", cwd=tree),
}


def test_each_change_has_a_digest_of_its_own(tree: Path) -> None:
    found = []
    for change in CHANGES.values():
        change(tree)
        found.append(edits(find_project(tree)))
        git("reset", "-q", "--hard", cwd=tree)
        git("clean", "-qfd", cwd=tree)
    assert edits(find_project(tree)) == ""
    assert all(found) and len(set(found)) == len(CHANGES)
