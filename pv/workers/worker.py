"""Runs one task in a worker: plants the mutant, imports subject and falsifier, tries, and sends the result."""

import gc
import hashlib
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pv.contract.names import Target
from pv.engines.code import Function
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.registry import engine_named
from pv.engines.stream import SLOT, Stream
from pv.engines.trial import TrialStatus
from pv.errors import BrokenMutant
from pv.instrument import code_cache, coverage, import_hook, processes
from pv.instrument.process_trace import ProcessTrace
from pv.source.project import HOME, SUITES
from pv.workers.streams import EVIDENCE_FD, adopt
from pv.workers.tasks import DEVICE, Body, structured

CODE = "code"
"""The folder of the compiled code that workers of a run share."""
SITE = Path(__file__).parents[1] / "instrument" / "site"


class WrongFile(Exception):
    """A module came from another file than the one that was linted."""


def run(task: Mapping[str, Any], evidence_fd: int) -> None:
    """Run one task (see `pv.workers.tasks`) and stream its evidence, which ends with a result unless it is killed."""
    body, start = Body.from_json(task), time.monotonic()
    stream = Stream(evidence_fd, Path(body.scratch) / SLOT)
    prepare(body)
    if body.kind == DEVICE:
        stream.put("end", **_device(body.device))
        return
    record = _try(body, stream)
    stream.put("end", seconds=time.monotonic() - start, **record)


def prepare(body: Body) -> None:
    """Put the project's roots first, for this process and for every Python that it starts."""
    roots = list(body.roots)
    sys.path[:0] = roots
    _prefer_suites(roots)
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), *roots, *inherited])
    os.environ["TMPDIR"] = body.scratch
    # Hypothesis keeps the constants of each module there, and would parse every module again in every worker.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(_shared(body) / "hypothesis")
    if "hypothesis" in sys.modules:  # a fork server has used its own folder, on which no result may depend
        sys.modules["hypothesis"].configuration.set_hypothesis_home_dir(None)
    tempfile.tempdir = None  # a value that the server cached is not this worker's folder
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if body.device != "cuda":
        # A claim for the CPU has the result of a machine without a GPU, and may fork: no CUDA context exists in it.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.chdir(body.root)
    if body.backstop_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = body.backstop_bytes if hard == resource.RLIM_INFINITY else min(body.backstop_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _prefer_suites(roots: list[str]) -> None:
    """Import suites from a root that has them, as a clone of `pv` does, and not from the `pv` that is installed."""
    for root in reversed(roots):
        folder = Path(root, *SUITES.relative_to(HOME).parts)
        if folder != SUITES and folder.is_dir():
            importlib.import_module("pv.suites").__path__.insert(0, str(folder))


def _try(body: Body, stream: Stream) -> dict[str, Any]:
    plan = body.plan
    failures = FailureClassifier(
        Path(body.root), body.subject_files, mutated=bool(plan.module), replacement=plan.swap_with
    )
    planted: import_hook.ImportHook | None = None
    watched: processes.Processes | None = None
    try:
        planted, watched = processes.watch(_plan(body), Path(body.root))
        record = engine_named(body.kind).attack(structured(body), _Services(body, failures, stream))
    except BrokenMutant as error:
        record = {"status": TrialStatus.INVALID_MUTANT.value, "detail": str(error)}
    except BaseException as error:
        record = {"status": TrialStatus.ERROR.value, "detail": describe_error(error), "error": describe_error(error)}
        record |= {"frames": failures.frames(error)}
    if planted is None or watched is None:
        return record
    trace = watched.trace()
    return record | _reads(trace, Path(body.root)) | _reach(planted, trace, record["status"])


def _plan(body: Body) -> import_hook.Plan:
    log = str(Path(body.scratch) / "reached.jsonl")
    cache = str(_shared(body) / CODE)
    return replace(body.plan, packages=body.packages, roots=body.roots, root=body.root, log=log, cache=cache)


def _shared(body: Body) -> Path:
    """Return the folder above that of the worker, which all workers of a run have in common."""
    return Path(body.scratch).parent


def _reads(trace: ProcessTrace, root: Path) -> dict[str, Any]:
    """Return what the result depends on."""
    loaded = {name: os.path.relpath(path, root) for name, path in trace.loaded.items()}
    reads = {
        "functions": sorted(name for name in trace.seen | trace.ran if "@" not in name),
        "loaded": loaded,
        "asked": sorted(trace.asked),
        "texts": sorted(trace.texts),
        "listed": sorted(trace.listed),
        "metadata": sorted(trace.metadata),
        "searched": {folder: sorted(names) for folder, names in trace.searched.items()},
        "looked": sorted(trace.looked),
        "outside": sorted(trace.outside),
        "readers": sorted(trace.readers),
        "unsure": trace.unsure,
    }
    return {"files": sorted(trace.files), "reads": reads}


def _reach(planted: import_hook.ImportHook, trace: ProcessTrace, status: str) -> dict[str, Any]:
    reached = trace.seen
    said_reached = {"reached": sorted(reached), "mutant_reached": planted.mutated() in reached}
    if trace.broken:
        return said_reached | {"status": TrialStatus.INVALID_MUTANT.value, "detail": trace.broken}
    if planted.plan.module and not trace.applied and status != TrialStatus.ERROR.value:
        return said_reached | {
            "status": TrialStatus.INVALID_MUTANT.value,
            "detail": f"{planted.plan.module} was never imported",
        }
    return said_reached


class _Services:
    """The services of this worker to an attack: subject, functions, stream."""

    def __init__(self, body: Body, failures: FailureClassifier, stream: Stream) -> None:
        self.device, self.mutated = body.device, bool(body.plan.module)
        self.failures, self.stream = failures, stream
        self._body, self._target = body, Target.parse(body.subject)

    @property
    def subject_module(self) -> str:
        return self._target.module

    @property
    def shared(self) -> Path | None:
        if self.mutated:
            return None
        return _shared(self._body) / "runs" / hashlib.sha256(self._body.subject.encode()).hexdigest()[:20]

    def subject(self) -> Any:
        return self._target.inside(_module(self._target.module, self._body.subject_file))

    def function(self, described: Function) -> Any:
        return getattr(_module(described.module, described.file), described.name)

    def ready(self) -> None:
        code_cache.leave_dataclasses()
        coverage.imported()


def _module(name: str, expected: str) -> Any:
    with _no_garbage():
        module = importlib.import_module(name)
    actual = getattr(module, "__file__", None)
    if actual is None or Path(actual).resolve() != Path(expected).resolve():
        raise WrongFile(f"{name} was loaded from {actual}, but the contract's lint resolved it to {expected}")
    return module


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect no garbage: an import makes little, and the searches for it are a twentieth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:  # the module has set none of its own
            gc.set_threshold(*before)


def _device(name: str) -> dict[str, Any]:
    """Return whether the device is present, and its name. Called in a worker: torch never runs in the fork server."""
    try:
        import torch
    except ImportError:
        return {"present": False, "detail": "torch is not installed"}
    if torch.cuda._is_in_bad_fork():
        detail = "a library that the project imports initialises CUDA, so no fork can use it: start pv with --spawn"
        return {"present": False, "detail": detail}
    if not torch.cuda.is_available():
        return {"present": False, "detail": f"torch {torch.__version__} sees no CUDA device"}
    return {"present": True, "name": torch.cuda.get_device_name(0), "torch": torch.__version__}


def main() -> None:
    """Run one task in an interpreter of its own; the task comes as a file."""
    adopt(int(sys.argv[1]), int(sys.argv[2]))
    run(json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")), EVIDENCE_FD)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
