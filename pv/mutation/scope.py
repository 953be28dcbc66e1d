"""The mutation scope: the functions that falsifiers executed, in the modules of their subjects."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path

from pv.contract.model import OWN_FILE, Contract, Falsifier, Target
from pv.mutation.generate import Candidate, GeneratedMutant, Module, distinct
from pv.source import imports, resolve
from pv.source.project import Project
from pv.source.resolve import Unbound


def owners(contract: Contract) -> dict[str, Contract]:
    """Return the contract of each falsifier that judges the mutants of `contract`, by id of the falsifier.

    The claims of the contract itself come first, then the claims of its judges.
    """
    return {claim.id: contract_ for contract_ in (contract, *contract.judges) for claim in contract_.claims}


def judging_claims(contract: Contract) -> tuple[Falsifier, ...]:
    """Return the falsifiers and harnesses that judge the mutants of a contract.

    Claims about an observed command are left out: dozens of claims would execute the command for every mutant.
    """
    claims = (claim for judging_contract in (contract, *contract.judges) for claim in judging_contract.claims)
    return tuple(claim for claim in claims if "observed" not in claim.options)


def holders(project: Project, contract: Contract) -> tuple[str, ...]:
    """Return the ids of the contracts whose scores include this contract; () if the contract has its own score.

    A contract without `mutation_scope` has no score of its own if another contract names it as a judge, or if the
    scopes of other contracts hold all its modules.
    """
    if contract.mutation_scope.modules:
        return ()
    other_contracts = [other for other in contract.known.values() if other.id != contract.id]
    judged = tuple(other.id for other in other_contracts if contract.id in other.mutation_scope.judge_ids)
    if judged:
        return judged
    names: list[str] = []
    with suppress(LookupError, Unbound):  # lint reports missing subjects and modules
        names = [module.name for module in modules(project, under_contract(contract, contract.claims))]
    holder_ids = {name: [other.id for other in other_contracts if other.mutation_scope.holds(name)] for name in names}
    return (
        tuple(dict.fromkeys(id_ for ids in holder_ids.values() for id_ in ids))
        if holder_ids and all(holder_ids.values())
        else ()
    )


def default_modules(project: Project, contract: Contract, falsifiers: Sequence[Falsifier]) -> list[Module]:
    """Return the modules under a contract without `mutation_scope`, except modules in the scopes of other contracts."""
    in_scope = modules(project, under_contract(contract, falsifiers))
    other_scopes = [other.mutation_scope for other in contract.known.values() if other.id != contract.id]
    return [module for module in in_scope if not any(other.holds(module.name) for other in other_scopes)]


def scope_modules(project: Project, contract: Contract) -> list[Module]:
    """Return the modules that `mutation_scope` of a contract names. Raise Unbound."""
    return modules(project, [Target(name) for name in contract.mutation_scope.names])


def subjects(contract: Contract, falsifiers: Iterable[Falsifier]) -> list[Target]:
    """Return the subjects of the falsifiers, in their order."""
    owner = owners(contract)
    return list(dict.fromkeys(owner[falsifier.id].subject_of(falsifier) for falsifier in falsifiers))


def under_contract(contract: Contract, falsifiers: Sequence[Falsifier]) -> list[Target]:
    """Return the subjects of the falsifiers, and the modules of the mutants that they declare in `kills`."""
    claimed = {name for falsifier in falsifiers for name in falsifier.kills}
    faulty = [Target(mutant.module) for mutant in contract.mutants if mutant.id in claimed]
    return list(dict.fromkeys([*subjects(contract, falsifiers), *faulty]))


def modules(project: Project, targets: Iterable[Target]) -> list[Module]:
    """Return the modules that the targets name; a package includes all its modules. Raise Unbound."""
    return [_module(project, path) for path in named_files(project, targets)]


def imported_modules(project: Project, targets: Iterable[Target]) -> list[Module]:
    """Return the project's modules of the targets, and the project's modules that they import. Raise Unbound."""
    return [_module(project, path) for path in imported_files(project, targets)]


def named_files(project: Project, targets: Iterable[Target]) -> list[Path]:
    """Return the files of the modules that the targets name. Raise Unbound."""
    return list(dict.fromkeys(path for target in targets for path in _files(project, target)))


def imported_files(project: Project, targets: Iterable[Target]) -> list[Path]:
    """Return the project's files of the targets, and the project's files that they import. Raise Unbound."""
    files, _ = imports.closure(project, [resolve.target_file(project, target) for target in targets])
    return sorted(files)


def _module(project: Project, path: Path) -> Module:
    return Module(resolve.module_name(project, path), path)


def _files(project: Project, target: Target) -> list[Path]:
    file = resolve.module_file(project, target.module)
    if target.module.endswith(OWN_FILE):
        return [file]
    return sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]


def matching(modules: Iterable[Module], patterns: Sequence[str]) -> list[Module]:
    """Return the modules whose names match a pattern; all if there is none."""
    return [m for m in modules if not patterns or any(fnmatchcase(m.name, pattern) for pattern in patterns)]


def no_match_message(contract: Contract, modules: Iterable[Module], patterns: Sequence[str], *, widely: bool) -> str:
    """Return the message that no module in scope matches `patterns`; `modules` are the modules in scope."""
    requested, names = " or ".join(patterns), ", ".join(module.name for module in modules) or "nothing"
    if widely:
        return f"no subject of {contract.id} imports {requested} (choose from {names})"
    if scope := contract.mutation_scope.names:
        names = ", ".join(scope)
        return f"{requested} is not in the `mutation_scope` of {contract.id} ({names}); --wide ignores the scope"
    return f"{requested} is not a subject of {contract.id} (choose from {names}); --wide adds what they import"


def mutants(modules: Sequence[Module], reached: frozenset[str]) -> list[GeneratedMutant]:
    """Return every mutant of the reached functions, in source order."""
    return [mutant for module in modules for mutant in module.mutants(reached)]


class Drawing:
    """Draws mutants of the code of subjects. It caches modules, so the files of the project must not change."""

    def __init__(self, project: Project) -> None:
        self._scopes = cache(partial(named_files, project)), cache(partial(imported_files, project))
        self._module = cache(partial(_module, project))

    def draw(self, subject: Target, reached: frozenset[str], seed: int) -> Iterator[GeneratedMutant]:
        """Yield mutants of the code that a falsifier executed, in random order, spread over the executed functions.

        If nothing that it executed in the module of the subject can be mutated, mutate the modules that this module
        imports.

        Args:
            subject: The subject of the falsifier.
            reached: The executed code, as `module:function` or `module:function@statement`.
            seed: The seed of the order.

        Raises:
            Unbound: A file cannot be found or parsed.
        """
        executed_modules = {name.partition(":")[0] for name in reached}
        # Only executed statements are mutated. A function without recorded statements counts as executed completely.
        exact = {name.partition("@")[0] for name in reached if "@" in name}
        for scope in self._scopes:
            executed = [module for module in map(self._module, scope((subject,))) if module.name in executed_modules]
            faults = chain.from_iterable(module.candidates(reached) for module in executed)
            candidates = [fault for fault in faults if fault.coverage_name in reached or fault.function not in exact]
            if candidates:
                return distinct(_spread(candidates, random.Random(seed)))
        return iter(())


def _spread(candidates: Sequence[Candidate], draw: random.Random) -> Iterator[Candidate]:
    """Yield the candidates in rounds of one per function, in random order."""
    functions: dict[str, list[Candidate]] = {}
    for candidate in draw.sample(candidates, len(candidates)):
        functions.setdefault(candidate.function, []).append(candidate)
    # Take the functions in turn, so that the first mutants do not all come from the longest function.
    return (candidate for candidate in chain(*zip_longest(*functions.values())) if candidate is not None)
