"""Run one task in a worker process: install the import hook, import the subject, attack the claim, send the result.

A fork server calls `run`. Without a fork server, `python -m pv.workers.worker EVIDENCE_FD OUTPUT_FD FILE` runs the task
in FILE.
"""

import contextlib
import fcntl
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
from types import ModuleType
from typing import Any

from pv.contract.model import Target
from pv.engines.code import Function
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.registry import engine_named
from pv.engines.stream import SLOT, Record, Stream
from pv.engines.trial import TrialStatus
from pv.errors import BrokenMutant
from pv.instrument import code_cache, coverage, import_hook, processes
from pv.instrument.process_trace import ProcessTrace
from pv.source.project import HOME, SUITES
from pv.workers.tasks import DEVICE, Body, payload_of

EVIDENCE_FD = 200
"""The file descriptor to which every worker writes evidence. It is large, because user code opens files from 3 on."""
CODE = "code"
"""The name of the folder with compiled code that the workers of a pool share."""
SITE = Path(__file__).parents[1] / "instrument" / "site"
"""The folder of the `sitecustomize.py` that the child processes of a worker import when Python starts."""


class WrongFile(Exception):
    """A module was imported from another file than the file to which lint resolved it."""


def use_descriptors(evidence: int, output: int) -> None:
    """Replace stdout and stderr by `output` and stdin by the null device, and move `evidence` to EVIDENCE_FD."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    null_device = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_device, 0)
    for fd in (output, null_device):
        if fd > 2:
            os.close(fd)
    if evidence != EVIDENCE_FD:
        os.dup2(evidence, EVIDENCE_FD)
        os.close(evidence)
    fcntl.fcntl(EVIDENCE_FD, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    # If the machine runs out of memory, the kernel should first kill a worker, since its task can run again.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def run(task: Mapping[str, object], evidence_fd: int) -> None:
    """Run one task and stream its evidence, which ends with a result unless the worker is killed.

    An exception of the attack is a result. An exception of the preparation, or of the check of a device, is raised.

    Args:
        task: The JSON of a `pv.workers.tasks.Body`.
        evidence_fd: The descriptor of the pipe to the parent.
    """
    body, start = Body.from_json(task), time.monotonic()
    stream = Stream(evidence_fd, Path(body.scratch) / SLOT)
    prepare(body)
    if body.kind == DEVICE:
        stream.put("end", **_device(body.device))
        return
    record = _try(body, stream)
    stream.put("end", seconds=time.monotonic() - start, **record)


def prepare(body: Body) -> None:
    """Set up paths, folders, devices and limits, for this process and for every Python that it starts."""
    roots = list(body.roots)
    sys.path[:0] = roots
    _prefer_suites(roots)
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), *roots, *inherited])
    os.environ["TMPDIR"] = body.scratch
    # Hypothesis stores the constants of modules in this folder. Workers share the folder, so that a module is parsed
    # only once.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(_shared(body) / "hypothesis")
    # In the fork server, Hypothesis has already chosen a folder; results must not depend on its content.
    if "hypothesis" in sys.modules:
        sys.modules["hypothesis"].configuration.set_hypothesis_home_dir(None)
    tempfile.tempdir = None  # forget the folder that the fork server used, so that TMPDIR is read
    # Write no __pycache__, from which another process could load the bytecode of a mutant.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if body.device != "cuda":
        # A claim on the CPU must have the same result as on a machine without a GPU. Its process must also be able to
        # fork, which a process with a CUDA context is not.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.chdir(body.root)
    if body.backstop_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = body.backstop_bytes if hard == resource.RLIM_INFINITY else min(body.backstop_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _prefer_suites(roots: list[str]) -> None:
    """Import suites from a root that contains them, such as a clone of `pv`, instead of the installed `pv`."""
    for root in reversed(roots):
        folder = Path(root, *SUITES.relative_to(HOME).parts)
        # `pv` is already imported from the installation, so only the search path of `pv.suites` can be changed.
        if folder != SUITES and folder.is_dir():
            importlib.import_module("pv.suites").__path__.insert(0, str(folder))


def _try(body: Body, stream: Stream) -> Record:
    """Attack the claim of a task, and return the fields of its result."""
    plan = body.plan
    failures = FailureClassifier(
        Path(body.root), body.subject_files, mutated=bool(plan.module), replacement=plan.swap_with
    )
    hook: import_hook.ImportHook | None = None
    watched: processes.Processes | None = None
    try:
        hook, watched = processes.watch(_plan(body), Path(body.root))
        record = engine_named(body.kind).attack(payload_of(body), _Services(body, failures, stream))
    except BrokenMutant as error:
        record = {"status": TrialStatus.INVALID_MUTANT.value, "detail": str(error)}
    except BaseException as error:
        record = {"status": TrialStatus.ERROR.value, "detail": describe_error(error), "error": describe_error(error)}
        record |= {"frames": failures.frames(error)}
    if hook is None or watched is None:
        return record
    trace = watched.trace()
    return record | _reads(trace, Path(body.root)) | _coverage(hook, trace, record["status"])


def _plan(body: Body) -> import_hook.Plan:
    """Return the plan of the import hook, with the folders of this worker."""
    log = str(Path(body.scratch) / "reached.jsonl")
    cache = str(_shared(body) / CODE)
    return replace(body.plan, packages=body.packages, roots=body.roots, root=body.root, log=log, cache=cache)


def _shared(body: Body) -> Path:
    """Return the folder that all workers of a pool share."""
    return Path(body.scratch).parent


def _reads(trace: ProcessTrace, root: Path) -> Record:
    """Return the code, files and folders that the result depends on (see `pv.engines.trial.Reads`)."""
    names = ("asked", "texts", "listed", "metadata", "looked", "outside", "readers")
    reads: Record = {name: sorted(getattr(trace, name)) for name in names}
    # A name with "@" is a statement of a function; only mutants need these.
    reads["functions"] = sorted(name for name in trace.seen | trace.ran if "@" not in name)
    reads["loaded"] = {name: os.path.relpath(path, root) for name, path in trace.loaded.items()}
    reads["searched"] = {folder: sorted(modules) for folder, modules in trace.searched.items()}
    return {"files": sorted(trace.files), "reads": {**reads, "unsure": trace.unsure}}


def _coverage(hook: import_hook.ImportHook, trace: ProcessTrace, status: str) -> Record:
    """Return which functions ran, and whether the mutated one did; for a mutant that was not planted, also its status.

    Args:
        hook: The import hook.
        trace: The trace of the worker and its child processes.
        status: The status of the trial so far.
    """
    record: Record = {"reached": sorted(trace.seen), "mutant_reached": hook.mutated_name in trace.seen}
    if trace.broken:
        return record | {"status": TrialStatus.INVALID_MUTANT.value, "detail": trace.broken}
    # An error keeps its status, because it may be the reason why the module was not imported.
    if hook.plan.module and not trace.applied and status != TrialStatus.ERROR.value:
        detail = f"{hook.plan.module} was never imported"
        return record | {"status": TrialStatus.INVALID_MUTANT.value, "detail": detail}
    return record


class _Services:
    """The services of this worker for an attack; see `pv.engines.engine.Worker`."""

    def __init__(self, body: Body, failures: FailureClassifier, stream: Stream) -> None:
        self.device, self.mutated = body.device, bool(body.plan.module)
        self.failures, self.stream = failures, stream
        self._body, self._target = body, Target.parse(body.subject)

    @property
    def subject_module(self) -> str:
        return self._target.module

    @property
    def shared(self) -> Path | None:
        """Return the folder in which all claims about the subject share runs; None for a mutant, whose runs differ."""
        if self.mutated:
            return None
        return _shared(self._body) / "runs" / hashlib.sha256(self._body.subject.encode()).hexdigest()[:20]

    def subject(self) -> Any:
        return self._target.inside(_module(self._target.module, self._body.subject_file))

    def function(self, described: Function) -> object:
        return getattr(_module(described.module, described.file), described.name)

    def ready(self) -> None:
        """End the imports: code that runs from now on is coverage of the attack, and dataclasses are not cached."""
        code_cache.stop_caching_dataclasses()
        coverage.separate_imports()


def _module(name: str, expected: str) -> ModuleType:
    """Import a module. Raise `WrongFile` if it was loaded from another file than the expected one."""
    with _without_garbage_collection():
        module = importlib.import_module(name)
    actual = getattr(module, "__file__", None)
    if actual is None or Path(actual).resolve() != Path(expected).resolve():
        raise WrongFile(f"{name} was loaded from {actual}, but the contract's lint resolved it to {expected}")
    return module


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Turn off garbage collection during an import: a collection takes 5 % of the time, and frees little memory."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:  # unless the module has set a threshold
            gc.set_threshold(*before)


def _device(name: str) -> Record:
    """Return whether a device is present, with its name or the reason why it is absent."""
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
    """Run the task of a file in this interpreter."""
    use_descriptors(int(sys.argv[1]), int(sys.argv[2]))
    run(json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")), EVIDENCE_FD)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
