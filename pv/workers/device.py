"""Finds the available devices. CUDA is asked for in a worker: the process that forks workers never runs torch."""

from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version

from pv.results.trial import DeviceInfo
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.live import Task
from pv.workers.pool import Pool

CPU = "cpu"
LIMIT_S = 60.0
Probe = Callable[[str], DeviceInfo | None]


def find(
    pool: Pool, project: Project, names: Iterable[str], probe: Probe | None
) -> tuple[dict[str, DeviceInfo], dict[str, str]]:
    """Return the available devices among `names`, and for each other one the reason."""
    there: dict[str, DeviceInfo] = {}
    absent: dict[str, str] = {}
    for name, (info, detail) in (_ask(pool, project, names) if probe is None else _probed(names, probe)).items():
        if info is None:
            absent[name] = detail
        else:
            there[name] = info
    return there, absent


def _probed(names: Iterable[str], probe: Probe) -> dict[str, tuple[DeviceInfo | None, str]]:
    return {name: (probe(name), f"no {name} device") for name in names}


def _ask(pool: Pool, project: Project, names: Iterable[str]) -> dict[str, tuple[DeviceInfo | None, str]]:
    found: dict[str, tuple[DeviceInfo | None, str]] = {}
    for name in names:
        if name == CPU:
            found[name] = (DeviceInfo(torch=_installed_torch()), "")
            continue
        body = tasks.device(project, name)
        pool.submit(Task(key=name, body=body, limit_s=LIMIT_S, memory_mib=tasks.memory_mib(name)))
    for task, reply in pool.replies():
        answer = reply.last("end") or {"present": False, "detail": f"no result of the check for {task.key}"}
        info = DeviceInfo(name=answer.get("name", ""), torch=answer.get("torch", "")) if answer["present"] else None
        found[task.key] = (info, answer.get("detail", ""))
    return found


def _installed_torch() -> str:
    """Return the version of torch without the seconds of its import, "" if it is not installed."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
