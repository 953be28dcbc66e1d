"""`pv doctor` finds what keeps contracts from being validated, and imports no torch itself."""

import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from pv.commands import doctor as module
from pv.commands.doctor import Check, Level, Package, doctor
from pv.workers import tasks
from tests.commands.small import run
from tests.support.projects import Project


@pytest.fixture
def small(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project, whose workers are not started."""
    monkeypatch.setattr(module, "_workers", lambda project, spawn: ())
    return project("small")


def problems() -> list[Check]:
    return [check for check in doctor() if check.level is Level.PROBLEM]


def test_sound_project_has_devices_and_no_problem(project: Project) -> None:
    project("small")
    done = run("doctor")
    assert done.returncode == 0, done.stdout
    assert "ok       workers    fork server, with torch loaded once\n" in done.stdout
    assert "ok       device     cpu: torch " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 problems, ")


def test_malformed_contract_is_a_problem_with_exit_code_1(small: Path) -> None:
    (small / "contracts/broken.yaml").write_text("schema: pv/2\n")
    (copy := small / "contracts/pv-1.schema.json").write_text(run("schema").stdout)
    done = run("doctor")
    assert (done.returncode, "pv schema >" in done.stdout) == (1, False)
    copy.write_text("{}")
    assert "of another version\n                    pv schema > contracts/pv-1.schema.json\n" in run("doctor").stdout
    assert "problem  contracts  1 readable, 1 error\n                    run `pv lint`\n" in done.stdout


def test_folder_without_contracts_needs_nothing_to_check_a_loop(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_workers", lambda project, spawn: ())
    checks = [check for check in doctor() if check.topic in ("project", "contracts")]
    shown = [(check.topic, check.level, check.remedy) for check in checks]
    assert shown == [("project", Level.OK, ""), ("contracts", Level.OK, "")]
    assert "`pv check`" in checks[1].text
    (empty / "pyproject.toml").write_text("[tool.pv]\n")  # a project of contracts lacks its folder
    assert [check.remedy for check in doctor() if check.level is Level.NOTE and check.topic == "project"] != []


def test_unusable_table_is_a_problem(small: Path) -> None:
    (small / "pyproject.toml").write_text("[tool.pv]\nroot = 1\n")
    assert [(check.topic, "unknown key 'root'" in check.text) for check in problems()] == [("project", True)]


def test_missing_import_of_the_code_is_a_problem(small: Path) -> None:
    file = small / "counting.py"
    file.write_text("import not_installed_anywhere\n" + file.read_text())
    (problem,) = problems()
    assert problem.text == "not_installed_anywhere is not installed, and claims of this project need it"


@pytest.mark.usefixtures("small")
def test_old_and_missing_packages_have_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "required_packages", lambda: (Package("rich", "rich>=99", "99", "15.0"),))
    symbolic = (Package("crosshair-tool", "crosshair-tool", "0", ""),)
    monkeypatch.setattr(module, "optional_packages", lambda: {"symbolic": symbolic})
    (problem,) = problems()
    assert (problem.text, problem.remedy) == ("rich 15.0 is older than 99", "pip install 'rich>=99'")
    (extra,) = [check for check in doctor() if check.topic == "extra"]
    assert (extra.level, extra.text) == (Level.NOTE, "symbolic: missing crosshair-tool")
    assert Package("rich", "rich>=9.2", "9.2", "15.0").usable
    assert "pv-contracts[symbolic]" in extra.remedy


def test_fork_server_that_cannot_start_is_a_problem(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project("small")
    monkeypatch.setattr("pv.workers.launch.START_LIMIT_S", 0.0)
    monkeypatch.setattr("pv.workers.launch.MEASURE_S", 0.0)
    assert [check.topic for check in problems()] == ["workers"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("free", "disk", "processes", "levels"),
    [
        (tasks.MEMORY_MIB, module.MIN_FREE_MIB, resource.RLIM_INFINITY, "ok ok ok"),
        (0, 1 << 20, 1 << 20, "ok ok ok"),  # the memory is unknown
        (tasks.MEMORY_MIB - 1, module.MIN_FREE_MIB - 1, 1, "note problem note"),
    ],
)
def test_limits_that_are_too_low_have_a_remedy(
    monkeypatch: pytest.MonkeyPatch, free: int, disk: int, processes: int, levels: str
) -> None:
    monkeypatch.setattr(module, "_free_memory_mib", lambda: free)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=disk << 20))
    monkeypatch.setattr(module.resource, "getrlimit", lambda _: (processes, 1 << 30))
    checks = [check for check in doctor() if check.topic in ("memory", "disk", "processes")]
    assert " ".join(check.level.value for check in checks) == levels
    assert [bool(check.remedy) for check in checks] == [check.level is not Level.OK for check in checks]
    assert checks[2].text == f"{'unlimited' if processes == resource.RLIM_INFINITY else processes} for this user"
