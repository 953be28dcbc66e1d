"""Find the available devices. A worker checks whether CUDA is available, so that this process never imports torch."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from pv.results.evidence import DeviceInfo
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.pool import Pool
from pv.workers.running_task import Task

CPU = "cpu"
LIMIT_S = 60.0
"""Limit on the time of a check in seconds."""
Probe = Callable[[str], DeviceInfo | None]
"""Returns the description of a device, such as "cuda"; None if the device is absent."""


def find(
    pool: Pool, project: Project, names: Iterable[str], probe: Probe | None
) -> tuple[dict[str, DeviceInfo], dict[str, str]]:
    """Find out which of the devices `names` are available.

    Args:
        pool: The pool whose workers check the devices.
        project: The project of the workers.
        names: The devices, such as `cuda`.
        probe: Called instead of a worker, for tests; None to use workers.

    Returns:
        The available devices by name, and the reasons why the other devices are not available, by name.
    """
    if probe is not None:
        answers = {name: (probe(name), f"no {name} device") for name in names}
    else:
        answers = _ask_workers(pool, project, names)
    available = {name: info for name, (info, _) in answers.items() if info is not None}
    return available, {name: detail for name, (info, detail) in answers.items() if info is None}


def _ask_workers(pool: Pool, project: Project, names: Iterable[str]) -> dict[str, tuple[DeviceInfo | None, str]]:
    """Return, by name, the device and ""; or None and the reason why the device is not available."""
    answers: dict[str, tuple[DeviceInfo | None, str]] = {}
    for name in names:
        # The CPU is always available, so no worker is started; the version of torch is read without an import.
        if name == CPU:
            torch = ""
            with suppress(PackageNotFoundError):
                torch = version("torch")
            answers[name] = (DeviceInfo(torch=torch), "")
            continue
        body = tasks.device_check(project, name)
        pool.submit(Task(key=name, body=body, limit_s=LIMIT_S, memory_mib=tasks.memory_mib(name)))
    for task, reply in pool.replies():
        end = reply.last("end") or {"present": False, "detail": f"no result of the check for {task.key}"}
        info = DeviceInfo(name=end.get("name", ""), torch=end.get("torch", "")) if end["present"] else None
        answers[task.key] = (info, end.get("detail", ""))
    return answers
