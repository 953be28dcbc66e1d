"""What a worker is told: the JSON of each task, with every name already resolved to the file it must come from."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pv import binding, bounds
from pv.hook import Plan
from pv.model import Binding, Contract, Edit, Falsifier, Harness, Mutant, Run, Target
from pv.project import Project

MEMORY_MIB = 4096
# A CUDA context and what it pins count as the process's own memory.
CUDA_MEMORY_MIB = 4 * MEMORY_MIB
ALWAYS_LOADED = ("pv.workers.worker", "pv.engines.property", "pv.engines.reference_run", "hypothesis")
EQUATIONS = ("pv.engines.equation",)
# The first optimizer step imports it, at half a second; loaded once in the server it costs a worker nothing.
LOADED_WITH = {"torch": ("torch._dynamo",)}


def memory_mib(device: str) -> int:
    """How much memory a task on this device may hold, its children included."""
    return CUDA_MEMORY_MIB if device == "cuda" else MEMORY_MIB


def seed_of(falsifier: str, seed: int) -> int:
    """The seed of a falsifier's examples: from its id, so that adding a falsifier does not change another's."""
    return int.from_bytes(hashlib.sha256(f"{falsifier}:{seed}".encode()).digest()[:6], "big")


@dataclass(frozen=True)
class Code:
    """A subject and a test of it, resolved. Raises Unbound on first use when a name leads nowhere."""

    project: Project
    subject: Target

    @cached_property
    def subject_file(self) -> Path:
        return binding.target_file(self.project, self.subject)

    @cached_property
    def subject_files(self) -> frozenset[Path]:
        return binding.closure(self.project, [self.subject_file])[0]

    def function(self, bound: Binding) -> dict[str, Any]:
        found = binding.function(self.project, bound)
        return {
            "module": binding.module_name(self.project, found.path),
            "file": str(found.path),
            "name": bound.name,
            "parameters": list(found.parameters),
        }

    def test(self, falsifier: Falsifier) -> dict[str, Any]:
        if falsifier.test is None:
            raise ValueError(f"{falsifier.id} is not bound to a test")
        return self.function(falsifier.test)

    def base(self, device: str, mutant: Mutant | None) -> dict[str, Any]:
        files, plan = set(self.subject_files), Plan()
        if mutant is not None:
            plan, more = planted(self.project, mutant)
            files |= more
        probe = tuple(sorted(binding.module_name(self.project, path) for path in files))
        return {
            "root": str(self.project.root),
            "roots": [str(root) for root in self.project.roots],
            "subject": str(self.subject),
            "subject_file": str(self.subject_file),
            "subject_files": [str(path) for path in files],
            "device": device,
            "plan": asdict(plan) | {"probe": probe},
            # A burst between two polls of the parent must not take the machine; CUDA maps far more than it uses.
            "backstop_bytes": 0 if device == "cuda" else MEMORY_MIB * 4 << 20,
        }


def planted(project: Project, mutant: Mutant) -> tuple[Plan, set[Path]]:
    change = mutant.change
    if isinstance(change, Edit):
        target = change.function
        plan = Plan(module=target.module, name=target.attribute, find=change.find, replace=change.replace)
        plan = replace(plan, occurrence=change.occurrence)
        return plan, {binding.module_file(project, target.module)}
    plan = Plan(module=change.object.module, name=change.object.attribute, swap_with=str(change.replacement))
    modules = (change.object.module, change.replacement.module)
    return plan, {binding.module_file(project, module) for module in modules}


def falsify(
    code: Code,
    contract: Contract,
    falsifier: Falsifier,
    device: str,
    *,
    examples: int,
    seed: int,
    mutant: Mutant | None,
    replay: str,
) -> dict[str, Any]:
    """Try a falsifier of `contract` on the subject, or on a mutant of it."""
    if falsifier.by_equation:
        what: dict[str, Any] = {"equation": falsifier.equation, "equations": contract.executable}
    else:
        what = {"test": code.test(falsifier)}
    return {
        "kind": "equation" if falsifier.by_equation else "falsify",
        **what,
        "examples": examples,
        "seed": seed_of(falsifier.id, seed),
        "replay": replay,
        **code.base(device, mutant),
    }


def prove(
    code: Code, harness: Harness, *, mutant: Mutant | None = None, replay: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Prove a harness on the subject, or on a mutant of it; or only try the point `replay`."""
    box = bounds.box(harness.bounds, harness.requires)
    return {
        "kind": "harness",
        "test": code.test(harness),
        "bounds": dict(harness.bounds),
        "requires": harness.requires,
        "engines": list(bounds.engines(harness.engine, box)),
        "limit_s": harness.limit_s,
        "replay": dict(replay) if replay is not None else None,
        **code.base("cpu", mutant),
    }


def execute(
    code: Code, run: Run, device: str, directory: Path, *, arguments: Mapping[str, Any], mutant: Mutant | None = None
) -> dict[str, Any]:
    """Execute a run and keep its record in `directory`."""
    return {
        "kind": "run",
        "callable": code.function(run.callable),
        "arguments": dict(arguments),
        "directory": str(directory),
        **code.base(device, mutant),
    }


def predicate(code: Code, falsifier: Falsifier, device: str, directory: Path) -> dict[str, Any]:
    """Try a predicate on the record of a run that is there already."""
    return {
        "kind": "run",
        "test": code.test(falsifier),
        "directory": str(directory),
        **code.base(device, None),
    }


def preload(project: Project, contracts: Sequence[Contract], subjects: Iterable[Target]) -> list[str]:
    """The third-party modules that the contracts' code imports, and what every worker needs."""
    paths = [binding.target_file(project, subject) for subject in subjects]
    for contract in contracts:
        tests = [f.test for f in contract.claims if f.test is not None]
        callables = [run.callable for run in contract.runs]
        paths += [binding.function(project, bound).path for bound in [*tests, *callables]]
    files, foreign = binding.closure(project, paths)
    # A package that loads its parts when they are asked for costs every worker seconds, unless they are named.
    foreign |= {name for name in binding.modules(files) if name.partition(".")[0] in foreign}
    if any(f.by_equation for contract in contracts for f in contract.falsifiers):
        foreign |= {"torch", *EQUATIONS}
    wanted = [*ALWAYS_LOADED, *sorted(foreign - {"pv", "hypothesis"})]
    return [*wanted, *(more for name in sorted(foreign) for more in LOADED_WITH.get(name, ()))]


def device(project: Project, name: str) -> dict[str, Any]:
    """Ask whether a device is there."""
    return {
        "kind": "device",
        "root": str(project.root),
        "roots": [str(root) for root in project.roots],
        "device": name,
    }
