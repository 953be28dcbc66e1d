"""How the hook gets into an interpreter, and what else of it stays as it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from pv.contract.mutants import Edit
from pv.contract.names import Target
from pv.errors import BrokenMutant
from pv.instrument.import_hook import Plan, install
from tests.instrument.programs import edit, environment


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


def test_without_a_plan_the_site_changes_nothing(folder: Path) -> None:
    settings = environment(Plan(), folder)
    settings.pop("PV_HOOK")
    command = [sys.executable, "-c", "import sys, subject; print(subject.double(2), len(sys.meta_path))"]
    ended = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=60)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(len(sys.meta_path))"], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == f"4 {bare.stdout}"


def test_a_plan_survives_its_way_through_the_environment() -> None:
    plan = edit("double", "é\n'\"", "\u2028", covered=("a", "b"), roots=("/",), packages=("c",), log="/log")
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_that_comes_too_late_is_refused() -> None:
    with pytest.raises(BrokenMutant) as refused:
        install(Plan(module="json", name="loads", find="1", replace="2"))
    assert str(refused.value) == "json is imported already, so it can no longer be mutated"


def test_a_plan_travels_with_its_occurrence() -> None:
    plan = Plan(module="m", name="f", find="a", replace="b", occurrence=3, statements=True, guarded=True)
    assert Plan.from_json(plan.to_json()) == plan
    assert Edit(function=Target("m", "f"), find="a", replace="b").occurrence is None
