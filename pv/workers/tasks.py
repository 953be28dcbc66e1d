"""Build the tasks of workers. A task (`Body`) has the file of every name that the worker must import."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cattrs

from pv.contract.model import Contract, Edit, Falsifier, Mutant, Run, Target
from pv.engines.code import Function, ResolvedCode
from pv.engines.engine import Conditions, Engine, P
from pv.engines.registry import engine_named, engine_of, engines
from pv.engines.run.engine import RunEngine
from pv.engines.trial import Trial
from pv.instrument.import_hook import Plan
from pv.results.reuse.dependencies import Source
from pv.source import imports, resolve
from pv.source.project import Project, is_installed

MEMORY_MIB = 4096
"""Limit on the memory of a task on the CPU, in MiB."""
CUDA_MEMORY_MIB = 4 * MEMORY_MIB
"""Limit on the memory of a task on CUDA, in MiB. It is larger, because the CUDA context and pinned memory count too."""
ALWAYS_LOADED = ("pv.workers.worker", "pv.engines.property.attack", "pv.engines.run.reference_run", "hypothesis")
"""The modules that every fork server imports, whatever the contracts name."""
DEVICE = "device"
"""The kind of a task that checks whether a device is available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The message that describes a task to its worker.

    Attributes:
        kind: The name of an engine, or `DEVICE`.
        root: The folder of the project.
        roots: The folders that code under contract is imported from.
        device: The device.
        payload: The JSON of the engine's `payload_type`.
        subject: The subject, as `module` or `module:attribute`.
        subject_file: The file of the subject's module.
        subject_files: The files of the subject, of the project modules that it imports, and of the code that a mutant
            changes.
        packages: The top-level packages that must be imported from `roots`, even if packages of these names are
            installed.
        plan: The changes that the import hook makes.
        backstop_bytes: The soft limit of the worker's data segment in bytes (RLIMIT_DATA); 0 for none.
        scratch: The temporary folder of the worker.
    """

    kind: str
    root: str
    roots: tuple[str, ...]
    device: str
    payload: Any = None
    subject: str = ""
    subject_file: str = ""
    subject_files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    plan: Plan = field(default_factory=Plan)
    backstop_bytes: int = 0
    scratch: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the task as JSON data, which `from_json` reads."""
        data: dict[str, Any] = cattrs.unstructure(self)
        return data

    def identity(self) -> dict[str, object]:
        """Return the part of the task that belongs to the key of a cached result.

        Temporary folders are omitted, since they are new in every validation. Files and modules that follow from the
        code are omitted, since the cache compares the digests of the code separately.
        """
        data = replace(self, subject_files=(), scratch="", plan=replace(self.plan, covered=())).as_json()
        return {**data, "payload": {**(data["payload"] or {}), "directory": ""}}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Body":
        """Return the task that `as_json` has converted to JSON data."""
        return cattrs.structure(data, cls)


def generate_hooks() -> None:
    """Generate the functions with which cattrs structures a task. A fork server calls this once for all its workers."""
    # Twice, because cattrs discards all generated functions when it first sees some of the types.
    for type_ in 2 * (Body, *(engine.payload_type for engine in engines())):
        if is_dataclass(type_):  # claims in prose have the payload None
            cattrs.get_structure_hook(type_)


def memory_mib(device: str) -> int:
    """Return the memory limit in MiB of a task on a device, including its child processes."""
    return CUDA_MEMORY_MIB if device == "cuda" else MEMORY_MIB


def attack(code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> Body:
    """Return the task that tries a claim on a subject, or on a mutant of the subject.

    Args:
        code: The subject and its files.
        contract: The contract of the claim.
        claim: The falsifier or harness.
        conditions: The device, the number of examples, the seed and the mutant.

    Raises:
        Unbound: A name in the claim or the mutant cannot be resolved.
    """
    engine = engine_of(claim)
    return _body(code, engine, engine.payload(code, contract, claim, conditions), conditions)


def execute(code: ResolvedCode, run: Run, conditions: Conditions) -> Body:
    """Return the task that executes a run and writes its record. Raise `Unbound` for an unresolved name."""
    engine = RunEngine()
    return _body(code, engine, engine.execution(code, run, conditions), conditions)


def identity(
    contract: Contract, claim: Falsifier, bodies: Sequence[Body], conditions: Conditions, *, spawn: bool
) -> list[object]:
    """Return the data from which the cache key of a trial is computed.

    The data contain the time limit of the claim, because the claim must be tried again if its limit is reduced. They do
    not contain the limit on a mutant, which depends on the measured time on the clean code.

    Args:
        contract: The contract of the claim.
        claim: The claim that is tried.
        bodies: The task of the claim, and the task of the run that the claim reads, if there is one.
        conditions: The conditions of the trial.
        spawn: Whether every worker is a new interpreter.
    """
    limit_s = engine_of(claim).limit_s(contract, claim, conditions)
    return [[body.identity() for body in bodies], limit_s, spawn]


def source_of(body: Body, claim: Falsifier, trials: Sequence[Trial]) -> Source:
    """Return the trials and the code on which a cached result depends.

    Args:
        body: The task of the claim.
        claim: The claim that was tried.
        trials: The trial of the claim, and the trial of the run that the claim read, if there is one.
    """
    plan = body.plan
    # Hypothesis uses constants in the source of the subject as examples.
    constants = (os.path.relpath(body.subject_file, body.root),) if body.kind == "property" else ()
    # A mutant is a change of the text of its function, so the result depends on the function even if it did not run.
    mutated = (f"{plan.module}:{plan.name}",) if plan.module else ()
    return Source(trials=tuple(trials), depends_on=engine_of(claim).depends_on, constants=constants, functions=mutated)


def device_check(project: Project, name: str) -> Body:
    """Return the task that checks whether a device is available."""
    roots = tuple(str(root) for root in project.roots)
    return Body(kind=DEVICE, root=str(project.root), roots=roots, device=name)


def _body(code: ResolvedCode, engine: Engine[P], payload: P, conditions: Conditions) -> Body:
    """Return the task with which the engine handles a payload under some conditions."""
    files, plan = set(code.subject_files), Plan()
    if conditions.mutant is not None:
        plan, mutated_files = plan_mutant(code.project, conditions.mutant)
        files |= mutated_files
    # Only these modules are instrumented for coverage; the other modules run at full speed.
    covered = tuple(sorted(resolve.module_name(code.project, path) for path in files))
    plan = replace(plan, covered=covered, statements=conditions.statements, guarded=conditions.guarded)
    return Body(
        kind=engine.name,
        root=str(code.project.root),
        roots=tuple(str(root) for root in code.project.roots),
        device=conditions.device,
        payload=cattrs.unstructure(payload),
        subject=str(code.subject),
        subject_file=str(code.subject_file),
        subject_files=tuple(sorted(map(str, files))),
        packages=_packages(code, payload, plan),
        plan=plan,
        # The parent measures memory only every 50 ms. This limit stops an allocation that would use up the memory of
        # the machine before the next measurement. A task on CUDA has no such limit, since CUDA maps far more memory
        # than it uses.
        backstop_bytes=0 if conditions.device == "cuda" else MEMORY_MIB * 4 << 20,
    )


def _packages(code: ResolvedCode, payload: Any, plan: Plan) -> tuple[str, ...]:
    """Return the top-level packages of the subject, of the functions of the payload, and of the mutant."""
    values = (getattr(payload, name) for name in payload.__dataclass_fields__)
    modules = [value.module for value in values if isinstance(value, Function)]
    modules += [code.subject.module, plan.module, plan.swap_with.partition(":")[0]]
    return tuple(sorted({name.partition(".")[0] for name in modules if name}))


def plan_mutant(project: Project, mutant: Mutant) -> tuple[Plan, set[Path]]:
    """Return the plan of the import hook for a mutant, and the files of its code. Raise `Unbound`.

    The files have the code that the mutant replaces, and the replacement, if it is another object.
    """
    change = mutant.change
    if isinstance(change, Edit):
        target = change.function
        plan = Plan(module=target.module, name=target.attribute, find=change.find, replace=change.replace)
        plan = replace(plan, occurrence=change.occurrence)
        return plan, {resolve.module_file(project, target.module)}
    plan = Plan(module=change.object.module, name=change.object.attribute, swap_with=str(change.replacement))
    modules = (change.object.module, change.replacement.module)
    return plan, {resolve.module_file(project, module) for module in modules}


def preload(project: Project, contracts: Sequence[Contract], subjects: Iterable[Target]) -> list[str]:
    """Return the modules that a fork server imports: the modules that every worker needs, and libraries.

    Args:
        project: The project. Its modules are not preloaded, only the libraries that they import.
        contracts: The contracts whose tests, runs and engines need libraries.
        subjects: The subjects on which the contracts are tried.
    """
    paths = [resolve.target_file(project, subject) for subject in subjects]
    for contract in contracts:
        tests = [f.test for f in contract.claims if f.test is not None]
        callables = [run.callable for run in contract.runs if run.callable is not None]
        paths += [resolve.function(project, bound).path for bound in [*tests, *callables]]
    files, imported = imports.closure(project, paths)
    foreign = {name for name in imported if not _is_inside(project, name)}
    # A package with lazy attributes, such as transformers, imports its modules only when they are first used, which
    # would be in every worker. So preload these modules by their full names.
    foreign |= {name for name in imports.modules(files) if name.partition(".")[0] in foreign}
    claims = [(contract, claim) for contract in contracts for claim in contract.claims]
    foreign |= {name for contract, claim in claims for name in engine_of(claim).preloads(contract, claim)}
    modules = [*ALWAYS_LOADED, *sorted(foreign - {"pv", *ALWAYS_LOADED})]
    # An optimizer of torch imports `torch._dynamo` in its first step, which takes two seconds, so preload this module.
    return [*modules, "torch._dynamo"] if "torch" in foreign and _uses_optimizer(files) else modules


def _is_inside(project: Project, name: str) -> bool:
    """Return whether Python would load a top-level module from a folder of the project, although outside the roots.

    Such a module is not preloaded: the fork server would run the module before a worker records which files it reads.
    """
    spec = None
    with suppress(ImportError, ValueError):  # ValueError: a module without a spec
        spec = find_spec(name)
    paths = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
    real_paths = (Path(path).resolve() for path in paths if path and not is_installed(path))
    return any(path.is_relative_to(project.root) for path in real_paths)


def _uses_optimizer(files: Iterable[Path]) -> bool:
    """Return whether the text of a file contains `optim`, so that the code may use an optimizer of torch."""
    return any("optim" in resolve.source(path) for path in files)


def payload_of(body: Body) -> object:
    """Return the payload of a task as the `payload_type` of its engine."""
    return cattrs.structure(body.payload, engine_named(body.kind).payload_type)
