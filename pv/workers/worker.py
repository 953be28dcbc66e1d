"""What one worker does: plant the mutant, import subject and falsifier from where lint found them, try, answer."""

import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pv import hook, probes
from pv.engines.blame import Blame, said
from pv.engines.stream import Stream
from pv.errors import BrokenMutant
from pv.evidence import Ending
from pv.model import Target

SITE = Path(__file__).parent / "site"


class WrongFile(Exception):
    """A module came from another file than the one that was linted."""


def _packages(task: Mapping[str, Any]) -> set[str]:
    named = [task.get("subject", ""), *(task.get(key, {}).get("module", "") for key in ("test", "callable"))]
    named += [task.get("plan", {}).get(key, "") for key in ("module", "swap_with")]
    return {name.partition(":")[0].partition(".")[0] for name in named if name}


class FilesRead:
    """The files of the project that this process reads from now on, data and code: what its evidence rests on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._opened: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path, mode, flags = arguments
            if not (flags or 0) & (os.O_WRONLY | os.O_RDWR) and not set(mode or "") & set("wax+"):
                self._opened.add(os.fsdecode(path))

    def read(self) -> list[str]:
        """Their paths below the root. A module that came from its cache was read all the same."""
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        paths = {Path(self.root, name).resolve() for name in [*self._opened, *filter(None, modules)]}
        inside = (path.relative_to(self.root) for path in paths if path.is_relative_to(self.root) and path.is_file())
        return sorted(p.as_posix() for p in inside if p.suffix != ".pyc" and not p.parts[0].startswith("."))


def run(task: Mapping[str, Any], evidence_fd: int) -> None:
    """Does one task (see `pv.tasks`) and streams what it finds. Every ending but a kill leaves an answer."""
    stream, start = Stream(evidence_fd), time.monotonic()
    prepare(task)
    if task["kind"] == "device":
        stream.put("end", **_device(task["device"]))
        return
    record = _try(task, stream)
    stream.put("end", seconds=time.monotonic() - start, **record)


def prepare(task: Mapping[str, Any]) -> None:
    """Puts the project's roots first, for this process and for every Python that it starts."""
    roots = list(task["roots"])
    sys.path[:0] = roots
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), *roots, *inherited])
    os.environ["TMPDIR"] = os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = task["scratch"]
    tempfile.tempdir = None  # the server's answer, if it was asked, is not where this worker's files belong
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(task["root"])
    if task.get("backstop_bytes"):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = task["backstop_bytes"] if hard == resource.RLIM_INFINITY else min(task["backstop_bytes"], hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _try(task: Mapping[str, Any], stream: Stream) -> dict[str, Any]:
    blame = Blame(Path(task["root"]), task["subject_files"], mutated=bool(task["plan"]["module"]))
    planted: hook.Hook | None = None
    files = FilesRead(Path(task["root"]))
    try:
        planted = hook.install(_plan(task))
        record = ATTACKS[task["kind"]](task, stream, blame)
    except BrokenMutant as error:
        record = {"ending": Ending.VOID.value, "detail": str(error)}
    except BaseException as error:
        record = {"ending": Ending.BROKEN.value, "detail": said(error), "error": said(error)}
        record |= {"frames": blame.frames(error)}
    return record | {"files": files.read()} | (_reach(planted, record["ending"]) if planted is not None else {})


def _plan(task: Mapping[str, Any]) -> hook.Plan:
    log = str(Path(task["scratch"]) / "reached.jsonl")
    here = {"packages": sorted(_packages(task)), "roots": task["roots"], "log": log}
    return hook.Plan.from_json(json.dumps({**task["plan"], **here}))


def _reach(planted: hook.Hook, ending: str) -> dict[str, Any]:
    reached, applied = hook.reached(planted)
    said_reached = {"reached": sorted(reached), "mutant_reached": planted.mutated() in reached}
    if broken := hook.broken(planted):
        return said_reached | {"ending": Ending.VOID.value, "detail": broken}
    if planted.plan.module and not applied and ending != Ending.BROKEN.value:
        return said_reached | {"ending": Ending.VOID.value, "detail": f"{planted.plan.module} was never imported"}
    return said_reached


def _falsify(task: Mapping[str, Any], stream: Stream, blame: Blame) -> dict[str, Any]:
    from pv.engines import property as engine

    mutated = bool(task["plan"]["module"])
    engine.load_profile(task["examples"], shrink=not mutated)
    subject = _subject(task)
    test = _function(task["test"])
    probes.imported()
    fixed = {"subject": subject, "device": task["device"]}
    how = engine.Settings(
        examples=task["examples"], seed=task["seed"], stop_at_first=mutated, replay=task.get("replay", "")
    )
    wanted = {name: value for name, value in fixed.items() if name in task["test"]["parameters"]}
    return engine.attack(test, wanted, how, blame, stream)


def _equation(task: Mapping[str, Any], stream: Stream, blame: Blame) -> dict[str, Any]:
    from pv.engines import equation as engine
    from pv.engines.property import Settings

    subject = _subject(task)
    probes.imported()
    how = Settings(
        examples=task["examples"],
        seed=task["seed"],
        stop_at_first=bool(task["plan"]["module"]),
        replay=task.get("replay", ""),
    )
    return engine.attack(task["equations"], task["equation"], subject, task["device"], how, blame, stream)


def _harness(task: Mapping[str, Any], stream: Stream, blame: Blame) -> dict[str, Any]:
    from pv.bounds import box
    from pv.engines import harness as engine
    from pv.engines.point import Claim

    subject = _subject(task)
    claim, space = Claim(_function(task["test"]), subject, blame), box(task["bounds"], task["requires"])
    probes.imported()
    if task["replay"] is not None:
        return engine.replay(claim, space, task["replay"])
    return engine.prove(claim, space, task["engines"], task["limit_s"], stream)


def _reference_run(task: Mapping[str, Any], stream: Stream, blame: Blame) -> dict[str, Any]:
    """Executes the run unless its record is there already, then tries the predicate, if the task has one."""
    from pv.engines import property as engine
    from pv.engines import reference_run

    engine.load_profile(100, shrink=True)
    directory = Path(task["directory"])
    if task.get("callable"):
        subject = _subject(task)
        configured = _function(task["callable"])
        probes.imported()
        try:
            reference_run.execute(
                configured, subject, device=task["device"], directory=directory, arguments=task["arguments"]
            )
        except BaseException as error:
            return _failed_run(error, blame, task["arguments"])
    if not task.get("test"):
        return {"ending": Ending.HELD.value, "valid": 1}
    predicate = _function(task["test"])
    how = engine.Settings(examples=1, seed=0)
    return engine.attack(predicate, {"run": reference_run.read(directory)}, how, blame, stream)


def _failed_run(error: BaseException, blame: Blame, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ending": blame.ending(error).value,
        "detail": f"the run did not finish: {said(error)}",
        "error": said(error),
        "arguments": dict(arguments),
        "exact": True,
        "frames": blame.frames(error),
        "valid": 1,
    }


ATTACKS: Mapping[str, Callable[[Mapping[str, Any], Stream, Blame], dict[str, Any]]] = {
    "falsify": _falsify,
    "equation": _equation,
    "harness": _harness,
    "run": _reference_run,
}


def _subject(task: Mapping[str, Any]) -> Any:
    target = Target.parse(task["subject"])
    return target.inside(_module(target.module, task["subject_file"]))


def _function(described: Mapping[str, Any]) -> Any:
    return getattr(_module(described["module"], described["file"]), described["name"])


def _module(name: str, expected: str) -> Any:
    module = importlib.import_module(name)
    actual = getattr(module, "__file__", None)
    if actual is None or Path(actual).resolve() != Path(expected).resolve():
        raise WrongFile(f"{name} was loaded from {actual}, but the contract's lint resolved it to {expected}")
    return module


def _device(name: str) -> dict[str, Any]:
    """Whether the device is there, and what it is. Asked in a worker: torch never runs in the process that forks."""
    try:
        import torch
    except ImportError:
        return {"present": name == "cpu", "detail": "torch is not installed"}
    if name == "cpu":
        return {"present": True, "name": "", "torch": torch.__version__}
    if not torch.cuda.is_available():
        return {"present": False, "detail": f"torch {torch.__version__} sees no CUDA device"}
    return {"present": True, "name": torch.cuda.get_device_name(0), "torch": torch.__version__}


def main() -> None:
    """A worker on its own, where there is no fork server: the task comes as an argument."""
    from pv.workers.server import EVIDENCE_FD, adopt

    adopt(int(sys.argv[1]), int(sys.argv[2]))
    run(json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")), EVIDENCE_FD)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
