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
