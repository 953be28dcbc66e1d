"""The task of a worker."""

import json

import pytest

from pv.contract.finding import Location
from pv.contract.mutants import Edit, Mutant, Swap
from pv.contract.names import Target
from pv.instrument.import_hook import Plan
from pv.source.project import find_project
from pv.source.resolve import Unbound
from pv.workers import tasks
from pv.workers.tasks import Body
from tests.commands.small import Project


def mutant(change: Edit | Swap, folder: object) -> Mutant:
    return Mutant(id="m", fault="f", change=change, location=Location(folder))


def test_body_survives_its_way_to_the_worker() -> None:
    plan = Plan(module="m", name="f", find="1", replace="2", covered=("m",))
    body = Body(kind="property", root="/", roots=("/",), device="cpu", payload={"a": [1]}, packages=("m",), plan=plan)
    assert Body.from_json(json.loads(json.dumps(body.as_json()))) == body


def test_task_on_cuda_may_hold_more_memory() -> None:
    assert tasks.memory_mib("cuda") == tasks.CUDA_MEMORY_MIB > tasks.memory_mib("cpu") == tasks.MEMORY_MIB


def test_edit_is_planted_in_the_file_of_its_function(project: Project) -> None:
    folder = project("small")
    edit = Edit(function=Target("counting", "total"), find="a", replace="b", occurrence=1)
    plan, files = tasks.planted(find_project(folder), mutant(edit, folder))
    assert (plan.module, plan.name, plan.find, plan.replace, plan.occurrence) == ("counting", "total", "a", "b", 1)
    assert files == {folder / "counting.py"}


def test_swap_is_planted_with_the_file_of_its_replacement(project: Project) -> None:
    folder = project("small")
    swap = Swap(object=Target("counting", "total"), replacement=Target("falsifiers.swaps", "without_limit"))
    plan, files = tasks.planted(find_project(folder), mutant(swap, folder))
    assert (plan.module, plan.name, plan.swap_with) == ("counting", "total", "falsifiers.swaps:without_limit")
    assert files == {folder / "counting.py", folder / "falsifiers/swaps.py"}


def test_module_of_the_project_below_no_root_is_not_preloaded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("small")
    for name in ("shared/scale.py", "shared/scales/linear.py", "env/site-packages/library.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    for path in (folder / "shared", folder / "env/site-packages"):
        monkeypatch.syspath_prepend(path)
    (folder / "counting.py").write_text("import library, scale, scales.linear, json.decoder\n")
    preloaded = tasks.preload(find_project(folder), [], [Target("counting", "")])
    assert preloaded == [*tasks.ALWAYS_LOADED, "json", "json.decoder", "library"]


def test_mutant_of_a_module_outside_the_project_is_refused(project: Project) -> None:
    folder = project("small")
    with pytest.raises(Unbound):
        tasks.planted(
            find_project(folder), mutant(Edit(function=Target("json", "loads"), find="a", replace="b"), folder)
        )
