"""The devices that are available, and the reason for each other one."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pv.results.trial import DeviceInfo
from pv.source.project import Project, find_project
from pv.workers import device
from pv.workers.live import Task


class FakePool:
    """Replies to each task with the record of its device."""

    def __init__(self, records: dict[str, dict[str, Any] | None]) -> None:
        self.records = records
        self.tasks: list[Task] = []

    def submit(self, task: Task) -> None:
        self.tasks.append(task)

    def replies(self) -> Iterator[tuple[Task, Any]]:
        for task in self.tasks:
            record = self.records[task.body.device]
            yield task, SimpleNamespace(last=lambda kind, record=record: record if kind == "end" else None)


def found(tmp_path: Path, records: dict[str, dict[str, Any] | None], probe: device.Probe | None = None) -> Any:
    project: Project = find_project(tmp_path)
    pool: Any = FakePool(records)
    return device.find(pool, project, records, probe)


def test_available_devices_are_separated_from_absent_ones(tmp_path: Path) -> None:
    present = {"present": True, "name": "NVIDIA H200", "torch": "2.11.0"}
    assert found(tmp_path, {"cuda": present}) == ({"cuda": DeviceInfo(name="NVIDIA H200", torch="2.11.0")}, {})
    assert found(tmp_path, {"cuda": {"present": False, "detail": "no torch"}}) == ({}, {"cuda": "no torch"})


def test_cpu_is_present_and_needs_no_worker(tmp_path: Path) -> None:
    assert found(tmp_path, {"cpu": None}) == ({"cpu": DeviceInfo(torch=version("torch"))}, {})


def test_device_whose_worker_gives_no_result_is_absent(tmp_path: Path) -> None:
    assert found(tmp_path, {"cuda": None}) == ({}, {"cuda": "asking for cuda gave no answer"})


def test_probe_takes_the_place_of_the_workers(tmp_path: Path) -> None:
    there, absent = found(tmp_path, {"cpu": None, "cuda": None}, lambda name: DeviceInfo() if name == "cpu" else None)
    assert (there, absent) == ({"cpu": DeviceInfo()}, {"cuda": "no cuda device"})
