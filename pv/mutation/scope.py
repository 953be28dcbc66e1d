"""Which functions are mutated: those that falsifiers reached, in the modules that their subjects name."""

import random
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain, islice, zip_longest
from pathlib import Path

from pv import binding
from pv.model import Contract, Falsifier, Target
from pv.mutation.generate import Automatic, Candidate, Module, distinct
from pv.project import Project


def subjects(contract: Contract, falsifiers: Iterable[Falsifier]) -> list[Target]:
    """The subjects of the falsifiers, in the order of the contract."""
    return list(dict.fromkeys(contract.subject_of(falsifier) for falsifier in falsifiers))


def under_contract(contract: Contract, falsifiers: Sequence[Falsifier]) -> list[Target]:
    """The subjects of the falsifiers, and the modules in which the contract names a fault for them to detect."""
    claimed = {name for falsifier in falsifiers for name in falsifier.kills}
    faulty = [Target(mutant.module) for mutant in contract.mutants if mutant.id in claimed]
    return list(dict.fromkeys([*subjects(contract, falsifiers), *faulty]))


def modules(project: Project, targets: Iterable[Target]) -> list[Module]:
    """The modules that the targets name; a package stands for all modules in it. Raises Unbound."""
    files = (path for target in targets for path in _files(project, target))
    return [Module(binding.module_name(project, path), path) for path in dict.fromkeys(files)]


def imported(project: Project, targets: Iterable[Target]) -> list[Module]:
    """Every module of the project that the targets consist of: theirs and what these import. Raises Unbound."""
    files, _ = binding.closure(project, [binding.target_file(project, target) for target in targets])
    return [Module(binding.module_name(project, path), path) for path in sorted(files)]


def _files(project: Project, target: Target) -> list[Path]:
    file = binding.module_file(project, target.module)
    return sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]


def matching(modules: Iterable[Module], patterns: Sequence[str]) -> list[Module]:
    """Those of the modules that are asked for; without a pattern all."""
    return [m for m in modules if not patterns or any(fnmatchcase(m.name, pattern) for pattern in patterns)]


def elsewhere(contract: Contract, modules: Iterable[Module], patterns: Sequence[str], *, widely: bool) -> str:
    """What the contract mutates instead of what was asked for, of which `modules` has nothing."""
    asked, names = " or ".join(patterns), ", ".join(module.name for module in modules) or "nothing"
    if widely:
        return f"no subject of {contract.id} imports {asked}; they consist of {names}"
    if contract.mutated:
        return (
            f"`mutated` of {contract.id} does not name {asked} but {', '.join(contract.places)}; --wide sets it aside"
        )
    return f"{contract.id} does not mutate {asked} but {names}; --wide adds what its subjects import"


def mutants(modules: Sequence[Module], reached: frozenset[str]) -> list[Automatic]:
    """Every automatic mutant of the reached functions, in the order of the source."""
    return [mutant for module in modules for mutant in module.mutants(reached)]


def some(project: Project, subject: Target, reached: frozenset[str], seed: int, most: int) -> list[Automatic]:
    """At most `most` mutants of what a falsifier reached, drawn by `seed` and spread over its functions.

    Where it reached nothing in the subject's own module, what that imports is mutated instead. Raises Unbound.
    """
    for scope in (modules, imported):
        found = [c for module in scope(project, [subject]) for c in module.candidates(reached) if _ran(c, reached)]
        if found:
            return list(islice(distinct(_spread(found, random.Random(seed))), most))
    return []


def _ran(candidate: Candidate, reached: frozenset[str]) -> bool:
    """Whether the changed statement was run, as far as statements were watched."""
    watched = any(name.startswith(f"{candidate.function}@") for name in reached)
    return candidate.place in reached or not watched


def _spread(found: Sequence[Candidate], draw: random.Random) -> Iterator[Candidate]:
    """In rounds, one of each function at a time, both in drawn order."""
    functions: dict[str, list[Candidate]] = {}
    for candidate in draw.sample(found, len(found)):
        functions.setdefault(candidate.function, []).append(candidate)
    return (candidate for candidate in chain(*zip_longest(*functions.values())) if candidate is not None)
