"""`validate` as a user runs it: its report, its colours, its reader."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.processes import run
from tests.support.projects import Project


def test_a_pass_as_a_pipe_shows_it(project: Project) -> None:
    project("small")
    done = run("validate")
    assert done.returncode == 0, done.stderr
    first, blank, last = done.stdout.splitlines()
    assert first == "PASS  counting  falsifiers 5/5  mutants 5/5  cuda 0/2 not measured"
    assert blank == ""
    assert last.startswith("0 fail, 0 undecided, 1 pass; ") and last.endswith("; seed 0; exit 0")
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [("validate",), ("mutate", "counting"), ("compare", "counting")])
def test_python_that_removes_assertions_is_refused(project: Project, arguments: tuple[str, ...]) -> None:
    project("small")
    done = run(*arguments, PYTHONOPTIMIZE="1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("pv: Python removes every `assert` (-O, or PYTHONOPTIMIZE=1)")
    assert len(done.stderr.splitlines()) == 1


def test_reports_are_written_beside_the_screen(project: Project, tmp_path: Path) -> None:
    project("small")
    files = {form: tmp_path / f"report.{form}" for form in ("json", "markdown", "junit", "text")}
    done = run("validate", "--only", "C-LIMIT", *(f"--output={form}={file}" for form, file in files.items()))
    assert done.returncode == 0, done.stderr
    assert json.loads(files["json"].read_text())["exit_code"] == 0
    assert ET.fromstring(files["junit"].read_text()).find("testsuite/testcase") is not None
    assert files["markdown"].read_text().startswith("## Falsifier report\n")
    assert files["text"].read_text().splitlines()[0] == done.stdout.splitlines()[0]


def test_color_only_on_a_terminal_and_never_with_no_color(project: Project) -> None:
    project("small")
    script = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'pv', 'validate', '--only', 'C-LIMIT']) >> 8)"

    def on_a_terminal(**environment: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            timeout=120,
        ).stdout

    assert "\x1b[1;32mPASS" in on_a_terminal()
    assert "\x1b[1;32mPASS" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in run("validate", "--only", "C-LIMIT").stdout


def test_a_reader_that_leaves_does_not_change_the_exit_code(project: Project) -> None:
    project("small")
    script = f"{sys.executable} -m pv validate --only C-LIMIT | head -c 0; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
