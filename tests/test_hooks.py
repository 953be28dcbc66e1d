"""The pre-commit hooks run commands that exist, and pre-commit runs them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pv.cli import main

ROOT = Path(__file__).parents[1]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
PRE_COMMIT = shutil.which("pre-commit")
Project = Callable[[str], Path]


def test_hooks_run_commands_that_exist() -> None:
    assert sorted(HOOKS) == ["pv-lint", "pv-validate"]
    for hook in HOOKS.values():
        program, command = hook["entry"].split()
        assert program == "pv" and command in main.commands


def test_hook_that_runs_code_uses_the_active_environment() -> None:
    assert HOOKS["pv-validate"]["language"] == "system"
    assert HOOKS["pv-validate"]["stages"] == ["pre-push", "manual"]


def test_hook_that_runs_code_runs_whatever_was_changed() -> None:
    """Claims may read data of any type."""
    assert HOOKS["pv-validate"]["always_run"] is True
    assert not {"types", "types_or", "files"} & HOOKS["pv-validate"].keys()


def test_page_shows_every_hook() -> None:
    text = (ROOT / "docs/commands.md").read_text()
    block = next(part for part in text.split("```yaml\n") if part.startswith("repos:")).partition("```")[0]
    (repo,) = yaml.safe_load(block)["repos"]
    assert [hook["id"] for hook in repo["hooks"]] == sorted(HOOKS)


@pytest.mark.skipif(PRE_COMMIT is None, reason="pre-commit is not installed")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="pre-commit reads hooks from a git repository")
def test_pre_commit_validates_until_a_contract_fails(project: Project) -> None:
    folder = project("small")
    assert hooked(folder, "pv-validate").returncode == 0
    code = folder / "counting.py"
    code.write_text(code.read_text().replace("return ", "return None and "))
    failed = hooked(folder, "pv-validate")
    assert failed.returncode == 1
    assert "FAIL  counting" in failed.stdout


def hooked(folder: Path, hook: str) -> "subprocess.CompletedProcess[str]":
    """Run a hook of this repository on all files of a folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return subprocess.run(
        [str(PRE_COMMIT), "try-repo", str(ROOT), hook, "--all-files", "--hook-stage", "manual", "--verbose"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(folder.parent / "pre-commit")},
    )
