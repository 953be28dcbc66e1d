"""A dry run builds every task, runs none, and needs no device."""

import json
from typing import Any

import pytest

from pv.commands.dry_run import dry_run
from pv.report.listing import dry_run_json, dry_run_text
from pv.results.dry_run import DryRun, PlannedTask
from tests.commands.small import edit, run
from tests.support.projects import Project


def tasks(result: Any, contract: str) -> list[tuple[str, str, str]]:
    return [(task.device, task.kind, task.mutant) for task in result.tasks[contract]]


def test_tasks_of_a_device_that_does_not_exist_are_built(project: Project) -> None:
    project("small")
    result = dry_run(devices=["cuda"])
    assert (result.exit_code, result.problems) == (0, ())
    assert {device for device, _, _ in tasks(result, "counting")} == {"cuda"}
    assert dry_run_text(result).splitlines()[-1] == "3 tasks for cuda in 1 contract, none was run; exit 0"
    assert dry_run(only=["NONE"]).exit_code == 2, "nothing is undecided"


def test_tasks_of_every_kind_and_of_mutants_are_built(project: Project) -> None:
    folder = project("small")
    with (folder / "falsifiers/falsify_counting.py").open("a") as falsifiers:
        falsifiers.write("\nraise SystemExit('it was run')\n")
    result = dry_run(devices=["cpu", "cuda"])
    assert result.exit_code == 0
    assert len({mutant for _, _, mutant in tasks(result, "counting") if mutant}) == 5
    cpu, cuda = "cpu: 3 property, 1 reference run, 2 run", "cuda: 1 property, 1 reference run, 1 run"
    text = f"counting  {cpu}; {cuda}; 5 declared mutants, 0 claims on generated mutants\n15 tasks for cpu and cuda in "
    assert dry_run_text(result).startswith(text)
    shown = json.loads(dry_run_json(result))
    assert len(shown["contracts"][0]["tasks"]) == len(result.tasks["counting"])


@pytest.mark.parametrize(("on", "code"), [("cpu", 1), ("cuda", 0)])
def test_stale_mutant_is_a_problem_where_mutants_are_tried(project: Project, on: str, code: int) -> None:
    edit(project("small") / "contracts/counting.yaml", "find: epochs * steps", "find: epochs / steps")
    result = dry_run(devices=[on])
    assert (result.exit_code, [f.code for f in result.findings]) == (code, ["PV133"] * code)


def test_claims_are_tried_although_an_equivalent_does_not_apply(project: Project) -> None:
    with (project("small") / "contracts/counting.yaml").open("a") as file:
        file.write('equivalents: [{function: "counting:total", find: epochs / steps, replace: "0", reason: none}]\n')
    result = dry_run(["C-LIMIT"])
    assert ([f.code for f in result.findings], len(result.tasks.get("counting", ()))) == ([], 3), "PV137 stops a claim"


@pytest.mark.parametrize("options", [["--record"], ["--format", "junit"], ["--output", "json=file"]])
def test_options_that_a_dry_run_does_not_take_are_refused(project: Project, options: list[str]) -> None:
    project("small")
    done = run("validate", "--dry-run", *options)
    assert (done.returncode, "--dry-run takes --format text or json" in done.stderr) == (3, True)


def test_the_tasks_are_those_of_the_request_in_their_order(project: Project) -> None:
    project("small")
    result = dry_run(["C-RUN", "C-LIMIT"], devices=["cpu", "cuda", "cpu"])
    assert [f"{task.kind}: {task}" for task in result.tasks["counting"]] == [
        "property: C-LIMIT on cpu",
        "reference run: whole on cpu",
        "run: C-RUN on cpu",
        "reference run: whole on cuda",
        "run: C-RUN on cuda",
        "property: C-LIMIT on cpu / limit-ignored",
        "property: C-LIMIT on cpu / limit-forgotten",
        "run: C-RUN on cpu / last-step-lost",
    ]
    assert (result.devices, result.on_generated_mutants) == (("cpu", "cuda"), {"counting": 0})
    without = dry_run(["C-LIMIT"], mutants=False)
    assert [str(task) for task in without.tasks["counting"]] == ["C-LIMIT on cpu"]


def test_the_command_builds_the_tasks_that_its_options_select(project: Project) -> None:
    folder = project("small")
    (folder / "other.yaml").rename(folder / "contracts/other.yaml")

    def built(*options: str) -> list[tuple[str, str, str, str]]:
        contracts = json.loads(run("validate", "--dry-run", "--format", "json", *options).stdout)["contracts"]
        return [
            (c["id"], *(task[key] for key in ("claim", "device", "mutant"))) for c in contracts for task in c["tasks"]
        ]

    assert {id_ for id_, *_ in built()} == {"counting", "other"}
    assert {id_ for id_, *_ in built("--contract", "other")} == {"other"}
    assert built("--only", "C-WHOLE", "--device", "cuda", "--device", "cpu") == [
        ("counting", "C-WHOLE", "cuda", ""),
        ("counting", "C-WHOLE", "cpu", ""),
        ("counting", "C-WHOLE", "cpu", "epoch-lost"),
    ]
    assert built("--only", "C-WHOLE", "--no-mutants") == [("counting", "C-WHOLE", "cpu", "")]


def test_no_task_of_a_contract_with_an_error_is_built(project: Project) -> None:
    edit(project("small") / "contracts/counting.yaml", "::falsify_limit", "::falsify_limits")
    result = dry_run()
    assert (result.exit_code, result.tasks, [f.code for f in result.findings]) == (1, {}, ["PV111"])
    task = PlannedTask(device="cpu", kind="property", claim="F", problem="no file")
    assert DryRun(findings=(), devices=("cpu",), tasks={"c": (task,)}, on_generated_mutants={}).exit_code == 1


def test_a_claim_that_the_subject_does_not_make_is_no_task(project: Project) -> None:
    project("compared")
    result = dry_run(subjects={"mean": "modest"})
    assert [str(task) for task in result.tasks["mean"]] == ["M-PAIR on cpu", "M-PAIR on cpu / not-divided"]
