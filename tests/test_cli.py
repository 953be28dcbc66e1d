"""The real commands, as a user runs them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

import pv
from pv.cli import main

Project = Callable[[str], Path]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pv", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_a_pass_as_a_pipe_shows_it(project: Project) -> None:
    project("small")
    done = run("validate")
    assert done.returncode == 0, done.stderr
    first, blank, last = done.stdout.splitlines()
    assert first == "PASS  counting  falsifiers 5/5  mutants 5/5  cuda 0/2 not measured"
    assert blank == ""
    assert last.startswith("0 fail, 0 undecided, 1 pass; ") and last.endswith("; seed 0; exit 0")
    assert done.stderr == ""


def test_reports_are_written_beside_the_screen(project: Project, tmp_path: Path) -> None:
    project("small")
    files = {form: tmp_path / f"report.{form}" for form in ("json", "markdown", "junit", "text")}
    done = run("validate", "--only", "C-LIMIT", *(f"--output={form}={file}" for form, file in files.items()))
    assert done.returncode == 0, done.stderr
    assert json.loads(files["json"].read_text())["exit_code"] == 0
    assert ET.fromstring(files["junit"].read_text()).find("testsuite/testcase") is not None
    assert files["markdown"].read_text().startswith("## Falsifier report\n")
    assert files["text"].read_text().splitlines()[0] == done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["validate", "nowhere.yaml"],
            "pv: no such file or folder: nowhere.yaml; name a contract file or a folder of contracts",
        ),
        (["validate", "--format", "xml"], "'xml' is not one of 'text', 'json', 'markdown', 'junit'"),
        (["validate", "--output", "json"], "--output 'json': write it as FORMAT=FILE"),
        (["validate", "--output", "json=no/such/file"], "there is no folder no/such"),
        (["validate", "--device", "tpu"], "unknown device 'tpu' (choose from cpu, cuda)"),
        (["validate", "--jobs", "0"], "0 is not in the range x>=1"),
        (["validate", "--subject", "counting"], "write it as CONTRACT=module or CONTRACT=module:attribute"),
        (["validate", "--replay", "{}"], "a replay needs exactly one falsifier, not 5: name it with --only"),
        (["validate", "--replay", "nonsense", "--only", "C-LIMIT"], "invalid example 'nonsense'"),
        (["validate", "--replay", "{", "--only", "C-LIMIT"], "invalid example '{'"),
        (["validate", "--replay", '{"limit": 1, "limit": 2}', "--only", "C-LIMIT"], "duplicate key 'limit'"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_wrong_call_is_refused_with_what_to_try(project: Project, arguments: list[str], message: str) -> None:
    project("small")
    done = run(*arguments)
    assert done.returncode == 3
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_project_table_is_refused(project: Project) -> None:
    folder = project("small")
    for text, message in (
        ("[tool.pv]\nroot = ['.']\n", "has no key 'root'; the keys are contracts, evidence, roots"),
        ("[tool.pv]\nroots = ['..']\n", "names '..', which lies outside the project"),
        ("[tool.pv]\nroots = '.'\n", "roots must be a non-empty list of folders, not '.'"),
        ("[tool.pv\n", "cannot be read"),
    ):
        (folder / "pyproject.toml").write_text(text)
        done = run("lint")
        assert done.returncode == 3
        assert message in done.stderr


def test_a_bug_of_ours_is_exit_70_with_its_traceback(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project("small")
    monkeypatch.setattr("pv.commands.request.check", lambda *_, **__: 1 // 0)
    done = CliRunner().invoke(main, ["lint"])
    assert done.exit_code == 70
    assert "ZeroDivisionError" in done.stderr
    assert "this is a bug in pv, not in your contract" in done.stderr


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


def test_lint_list_and_schema(project: Project) -> None:
    project("small")
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"
    listed = run("list").stdout
    assert "C-LIMIT  [cpu]  a limit takes effect where it is smaller" in listed
    assert json.loads(run("list", "--format", "json").stdout)[0]["falsifiers"][0]["id"] == "C-LIMIT"
    for name in ("contract", "existing", "report", "comparison", "evidence"):
        assert json.loads(run("schema", name).stdout) == pv.schema(name)
    assert "PV101  a duplicate id in a contract" in run("lint", "--codes").stdout


def test_a_reader_that_leaves_is_no_crash(project: Project) -> None:
    project("small")
    done = subprocess.run(
        f"{sys.executable} -m pv list | head -c 1", shell=True, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_does_not_change_the_exit_code(project: Project) -> None:
    project("small")
    script = f"{sys.executable} -m pv validate --only C-LIMIT | head -c 0; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_list_says_what_it_could_not_read(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    done = run("list")
    assert done.returncode == 3
    assert "contracts/broken.yaml:1:9 PV014 unknown format 'pv/2'" in done.stderr
    assert "C-LIMIT" in done.stdout
