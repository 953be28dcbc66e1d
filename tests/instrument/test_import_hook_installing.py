"""How the hook gets into an interpreter, and what else of it stays as it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from pv.errors import BrokenMutant
from pv.instrument.import_hook import Plan, install
from tests.instrument.programs import SUBJECT, edit, environment, value


def test_a_child_finds_a_package_of_the_project_before_an_installed_one(folder: Path) -> None:
    for home, name in ((folder, "mine"), (folder / "elsewhere", "theirs")):
        (home / "package").mkdir(parents=True)
        (home / "package" / "module.py").write_text(f"NAME = {name!r}\n")
    (folder / "elsewhere" / "package" / "__init__.py").write_text("")
    plan = Plan(packages=("package",), roots=(str(folder),))
    settings = environment(plan, folder, folder / "elsewhere")
    command = [sys.executable, "-c", "import package.module; print(package.module.NAME)"]
    ended = subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("mine\n", "")


def test_a_sitecustomize_of_the_users_still_runs(folder: Path) -> None:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import builtins\nbuiltins.HERS = 'ran'\n")
    command = [sys.executable, "-c", "import subject; print(HERS, subject.double(2))"]
    settings = environment(edit("double", "2", "3"), folder, mine)
    ended = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("ran 6\n", "")


def test_a_plan_that_comes_too_late_is_refused() -> None:
    with pytest.raises(BrokenMutant) as refused:
        install(Plan(module="json", name="loads", find="1", replace="2"))
    assert str(refused.value) == "json is imported already, so it can no longer be mutated"


@pytest.mark.parametrize("plan", [Plan(), Plan(covered=("subject",)), edit("double", "number * 2", "0")])
def test_a_traceback_shows_the_right_line(plan: Plan, folder: Path) -> None:
    program = (
        "import subject, traceback\n"
        "try:\n    subject.fails(1)\nexcept ValueError as error:\n"
        "    frame = traceback.extract_tb(error.__traceback__)[-1]\n    show([frame.lineno, frame.line])"
    )
    line = SUBJECT[: SUBJECT.index("raise ValueError")].count("\n") + 1
    assert value(plan, folder, program) == [line, "raise ValueError(below)"]
