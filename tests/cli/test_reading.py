"""The commands that run no code under contract."""

import json

import pv
from tests.commands.small import run
from tests.support import processes
from tests.support.projects import Project


def test_lint_list_and_schema(project: Project) -> None:
    project("small")
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"
    listed = run("list").stdout
    assert "C-LIMIT  [cpu]  a limit takes effect where it is smaller" in listed
    assert json.loads(run("list", "--format", "json").stdout)[0]["falsifiers"][0]["id"] == "C-LIMIT"
    for name in ("contract", "existing", "report", "comparison", "evidence"):
        assert json.loads(run("schema", name).stdout) == pv.schema(name)
    assert "PV101  a duplicate id in a contract" in run("lint", "--codes").stdout


def test_list_says_what_it_could_not_read(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    done = run("list")
    assert done.returncode == 3
    assert "contracts/broken.yaml:1:9 PV014 unknown format 'pv/2'" in done.stderr
    assert "C-LIMIT" in done.stdout


def test_lint_shows_the_line_of_a_finding_only_if_verbose(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    assert " | schema: pv/2" not in run("lint").stdout
    assert "\n      1 | schema: pv/2\n        |         ^\n        = pv explain PV014\n" in run("lint", "-v").stdout


def test_shell_completes_ids_and_paths(project: Project) -> None:
    project("small")
    done = processes.run(_PV_COMPLETE="bash_complete", COMP_WORDS="pv validate C-LI", COMP_CWORD="2")
    assert done.stdout.split() == ["file,C-LI", "plain,C-LIMIT"]
