"""`validate` as a user runs it: its report, its colours, its reader."""

import subprocess
import sys
from pathlib import Path

import pytest

from pv.report import render
from tests.report.handmade import PLAIN
from tests.support.processes import python, run
from tests.support.projects import Project


@pytest.mark.parametrize("arguments", [("validate",), ("mutate", "counting"), ("compare", "counting")])
def test_python_that_removes_assertions_is_refused(project: Project, arguments: tuple[str, ...]) -> None:
    project("small")
    done = run(*arguments, PYTHONOPTIMIZE="1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("pv: Python removes every `assert` (-O, or PYTHONOPTIMIZE=1)")
    assert len(done.stderr.splitlines()) == 1


def test_color_only_on_a_terminal_and_never_with_no_color(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(render(PLAIN, "json"))
    command = ["report", str(tmp_path / "r.json"), "--partial"]
    script = f"import pty, sys; pty.spawn([sys.executable, '-m', 'pv', *{command}])"

    def on_a_terminal(**environment: str) -> str:
        return python("-c", script, TERM="xterm-256color", **environment).stdout

    assert "\x1b[1;31mFAIL" in on_a_terminal()
    assert "\x1b[1;31mFAIL" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in run(*command).stdout


def test_a_reader_that_leaves_does_not_change_the_exit_code(project: Project) -> None:
    project("small")
    script = f"{sys.executable} -m pv validate --only C-LIMIT | head -c 0; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
