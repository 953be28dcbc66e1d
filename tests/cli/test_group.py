"""Exit codes of refusals and of bugs, and the commands that run no code under contract."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import pv
from pv.linting import CODES
from tests.commands.small import run
from tests.support import processes
from tests.support.projects import Project


def test_a_bug_of_ours_is_exit_70_with_its_traceback(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project("small")
    monkeypatch.setattr("pv.commands.plan.check", lambda *_, **__: 1 // 0)
    done = run("lint")
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr
    assert "this is a bug in pv, not in your contract" in done.stderr
    monkeypatch.setattr("pv.commands.plan.check", Mock(side_effect=KeyboardInterrupt))
    assert run("lint").returncode == 130


@pytest.mark.parametrize(
    ("command", "unbuffered"), [("list", ""), ("list", "1"), ("--version", ""), ("validate --only C-WHOLE", "")]
)
def test_full_disk_is_an_error_of_one_line(project: Project, command: str, unbuffered: str) -> None:
    project("small")
    with Path("/dev/full").open("w") as full:
        done = processes.python("-m", "pv", *command.split(), out=full, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (3, "pv: cannot write to standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "nowhere.yaml"], "pv: no such file or folder: nowhere.yaml; name a contract file or a folder"),
        (["validate", "--output", "json=absent/r.json"], "for --output: no such folder: absent"),
        (["validate", "--output", "json"], "invalid value 'json' for --output: expected FORMAT=FILE"),
        (
            ["validate", "--dry-run", "--record"],
            "--dry-run takes --format text or json, and neither --output, --record",
        ),
        (["validate", "--dry-run", "--format", "junit"], "--dry-run takes --format text or json"),
        (["new", "a", "--trainer", "b:C"], "--trainer takes neither a name nor --subject"),
        (["new", "--trace", "traces"], "--trace has no effect without --trainer"),
        (["schema", "report", "--format", "markdown"], "only the schema 'contract' has a reference in Markdown"),
        (["validate", "--subject", "counting"], "expected CONTRACT=module[:attribute]"),
        (["validate", "--replay", '{"limit": 1, "limit": 2}', "--only", "C-LIMIT"], "duplicate key 'limit'"),
    ],
)
def test_invalid_option_is_refused_with_a_hint(project: Project, arguments: list[str], message: str) -> None:
    project("small")
    done = run(*arguments)
    assert done.returncode == 3
    assert message in done.stderr


def test_explain_prints_a_code_with_a_wrong_and_a_right_example() -> None:
    done = run("explain", "PV005")
    assert done.returncode == 0
    assert done.stdout.startswith(f"PV005  {CODES['PV005']}\n")
    assert "\nWrong:\n    subject: tiny\n    subject: tiny\n" in done.stdout
    assert done.stdout.endswith("\nRight:\n    subject: tiny\n")
    assert run("explain", "pv005").stdout == done.stdout


def test_lint_list_and_schema(project: Project) -> None:
    project("small")
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"
    listed = run("list").stdout
    assert "C-LIMIT  [cpu]  a limit takes effect where it is smaller" in listed
    assert run("list", "-v").stdout != listed
    assert run("lint", "--subject", "counting=nowhere").returncode == 1
    assert json.loads(run("list", "--format", "json").stdout)[0]["falsifiers"][0]["id"] == "C-LIMIT"
    for name in ("contract", "existing", "report", "comparison", "evidence"):
        assert json.loads(run("schema", name).stdout) == pv.schema(name)
    assert "PV101  a duplicate id in a contract" in run("lint", "--codes").stdout


def test_list_names_unreadable_contracts_and_verbose_lint_shows_the_line(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    done = run("list")
    assert done.returncode == 3
    assert "contracts/broken.yaml:1:9 PV014 unknown format 'pv/2'" in done.stderr
    assert "C-LIMIT" in done.stdout
    assert " | schema: pv/2" not in run("lint").stdout
    assert "\n      1 | schema: pv/2\n        |         ^\n        = pv explain PV014\n" in run("lint", "-v").stdout


@pytest.mark.parametrize(("command", "escape"), [("list", r"\e"), ("explain C-LIMIT", r"\e"), ("lint -v", "\x1b")])
def test_a_contract_does_not_control_the_terminal(project: Project, command: str, escape: str) -> None:
    contract = project("small") / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("a limit takes", f'"a {escape}[31mlimit" #'))
    done = run(*command.split())
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", done.stdout + done.stderr) == []
    assert r"a \x1b[31mlimit" in done.stdout


def test_shell_completes_ids_and_paths(project: Project) -> None:
    project("small")
    done = processes.run(_PV_COMPLETE="bash_complete", COMP_WORDS="pv validate C-LI", COMP_CWORD="2")
    assert done.stdout.split() == ["file,C-LI", "plain,C-LIMIT"]


def test_lint_counts_what_it_finds_and_exits_with_the_worst(project: Project) -> None:
    folder = project("small")
    contract = folder / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("::falsify_limit", "::falsify_limits"))
    assert run("lint").returncode == 1
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    lint = run("lint")
    assert lint.stdout.endswith("1 contract: 1 invalid file, 1 error, 0 notices\n"), lint.stdout
    assert (lint.returncode, run("list").returncode, run("show").returncode) == (3, 3, 3)
    assert [entry["severity"] for entry in json.loads(run("lint", "--format", "json").stdout)] == ["refusal", "error"]
    contract.unlink()
    (folder / "contracts/broken.yaml").unlink()
    assert [run(command).returncode for command in ("lint", "list", "show")] == [2, 2, 2]


def test_show_prints_the_equations_of_the_named_claims_alone(project: Project) -> None:
    contract = project("kernels") / "contracts/kernels.yaml"
    shown = run("show", "K-SILU").stdout
    assert [line for line in shown.splitlines() if line.startswith("  ") and line[2] != " "] == ["  silu"], shown
    contract.write_text(contract.read_text().replace("x / (1 + exp(-x))", "x / (1 + exq(-x))"))
    assert (run("show", "K-SILU").returncode, "unknown function or equation 'exq'" in run("show").stderr) == (3, True)
    project("small")
    without = run("show")
    says = "no executable equation; `pv explain C-LIMIT` shows a claim, `pv list -v` all claims\n"
    assert (without.returncode, without.stdout, without.stderr) == (0, "", says)


def test_why_lists_what_has_changed_since_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("A", True, "2026-11-20", ()), ("B", False, "2026-11-20", ("x.py", "y.py")), ("C", False, "", ("new",))]
    answers = [SimpleNamespace(claim=c, reused=r, when=w, reasons=why) for c, r, w, why in rows]
    monkeypatch.setattr("pv.commands.explain.reuse_statuses", lambda names: answers if names == ["A", "*"] else [])
    assert run("why", "A", "*").stdout.splitlines() == [
        "A: reused, nothing changed since its result of 2026-11-20",
        "B: will run",
        "  changed since its result of 2026-11-20:",
        "  - x.py",
        "  - y.py",
        "C: will run",
        "  - new",
    ]
