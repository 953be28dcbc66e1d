"""The report of a dry run: one line a contract, then the problems."""

import json

from pv.report.dry_run import data, text
from pv.results.dry_run import Built, DryRun

TASKS = (
    Built(device="cpu", kind="property", claim="F"),
    Built(device="cuda", kind="property", claim="F"),
    Built(device="cpu", kind="equation", claim="E", problem="no file"),
    Built(device="cpu", kind="property", claim="F", mutant="m"),
    Built(device="cpu", kind="property", claim="G", mutant="m"),
)
RESULT = DryRun(findings=(), devices=("cpu", "cuda"), tasks={"c": TASKS}, automatic={"c": 2})


def test_text_counts_tasks_by_device_and_kind() -> None:
    assert text(RESULT).splitlines() == [
        "c  cpu: 1 equation, 1 property; cuda: 1 property; 1 declared mutant, 2 claims on automatic mutants",
        "error: E on cpu: no file",
        "5 tasks for cpu and cuda in 1 contract, none was run; exit 1",
    ]


def test_data_lists_every_task() -> None:
    shown = json.loads(data(RESULT))
    assert (shown["exit_code"], shown["devices"], shown["findings"]) == (1, ["cpu", "cuda"], [])
    assert [task["problem"] for task in shown["contracts"][0]["tasks"]] == ["", "", "no file", "", ""]
