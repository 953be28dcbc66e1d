"""Finds the contracts and claims that arguments name, each by a path or by an id."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pv.commands.suite_claims import suite_hint
from pv.contract.finding import Severity
from pv.contract.load import Loaded, is_folder, load
from pv.contract.model import Contract
from pv.contract.suites import suites
from pv.contract.wording import nearest
from pv.errors import UsageError
from pv.source.project import Project, find_project


@dataclass(frozen=True, slots=True)
class Named:
    """The files and folders of the named contracts, and the ids of the named claims; None for all of them."""

    paths: tuple[Path, ...] = ()
    claims: tuple[str, ...] | None = None

    def of(self, contract: Contract) -> Contract:
        """Return a contract with only its named claims."""
        if self.claims is None:
            return contract
        falsifiers = tuple(each for each in contract.falsifiers if each.id in self.claims)
        return replace(
            contract,
            falsifiers=falsifiers,
            harnesses=tuple(each for each in contract.harnesses if each.id in self.claims),
        )


def resolve(names: Sequence[str | Path], project: Project) -> Named:
    """Return what paths and ids name; ids of the project may be glob patterns.

    A path wins over an equal id, unless it is a folder without a contract, such as a package of the same name. Raise
    UsageError for a name that is neither.
    """
    if all(_may_hold_contracts(name) for name in names):
        return Named(tuple(map(Path, names)))
    known = load(path for path in project.contracts if path.exists())
    found = [_one(str(name), known) for name in names]
    paths = tuple(dict.fromkeys(path for named in found for path in named.paths))
    if all(named.claims is None for named in found):
        return Named(paths)
    return Named(paths, tuple(dict.fromkeys(id_ for named in found for id_ in _claims(named))))


def ids() -> dict[str, str]:
    """Return the ids of the contracts and claims of the project around the working directory, with a description."""
    project = find_project(Path.cwd())
    known = load(path for path in project.contracts if path.exists()).contracts
    claims = {claim.id: claim.rule for contract in known for claim in contract.claims}
    return {contract.id: contract.description for contract in known} | claims


def contract_id(name: str) -> str:
    """Return the id of the only contract in a file of this name; the name itself if there is no such file."""
    if not _may_hold_contracts(name):
        return name
    found = load([name]).contracts
    if len(found) != 1:
        raise UsageError(f"{name} has {len(found)} valid contracts, expected one; `pv lint {name}` shows why")
    return found[0].id


def _may_hold_contracts(name: str | Path) -> bool:
    """Return whether a path is a file, or a folder with YAML files."""
    return any(Path(name).rglob("*.y*ml")) if is_folder(name) else os.path.lexists(name)


def _one(name: str, known: Loaded) -> Named:
    if _may_hold_contracts(name):
        return Named((Path(name),))
    contracts = [contract for contract in known.contracts if fnmatchcase(contract.id, name)]
    # The id in a malformed file cannot be read, but files are usually named by it.
    broken = (f.location.path for f in known.findings if f.severity is Severity.REFUSAL)
    if paths := (*(contract.location.path for contract in contracts), *(p for p in broken if p.stem == name)):
        return Named(paths)
    claims = [(contract, each.id) for contract in known.contracts for each in contract.claims]
    matching = [(contract, id_) for contract, id_ in claims if fnmatchcase(id_, name)]
    if not matching and os.path.lexists(name):
        return Named((Path(name),))
    if not matching and name in suites():
        return Named((suites()[name],))
    if not matching:
        raise _unknown(name, known)
    return Named(tuple(c.location.path for c, _ in matching), tuple(id_ for _, id_ in matching))


def _claims(named: Named) -> Iterator[str]:
    """Yield the ids of the claims that are named, those of whole contracts included."""
    if named.claims is not None:
        yield from named.claims
    else:
        yield from (claim.id for contract in load(named.paths).contracts for claim in contract.claims)


def _unknown(name: str, known: Loaded) -> UsageError:
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return UsageError(f"no such file or folder: {name}; name a contract file or a folder of contracts")
    contracts = [contract.id for contract in known.contracts]
    near = nearest(name, contracts) or _nearest_claim(name, [c.id for each in known.contracts for c in each.claims])
    start = "`pv list` shows all ids" if contracts else "the project has no contracts, `pv new` writes a first one"
    hint = suite_hint(name) or (f"did you mean {near!r}?" if near else start)
    return UsageError(f"no such file, folder, contract or claim: {name}; {hint}")


def _nearest_claim(name: str, claims: Sequence[str]) -> str:
    """Return the most similar claim; those that share the start of the name are compared first."""
    start = name.rpartition("-")[0]
    return nearest(name, [id_ for id_ in claims if start and id_.startswith(start)] or list(claims))
