"""Resolve the names that a user types: contracts, claims, suites, topics and subjects."""

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pv.contract.finding import Severity
from pv.contract.load import Loaded, is_folder, load
from pv.contract.model import Contract, Target, hyphen_hint
from pv.contract.suites import OBSERVED, suites
from pv.contract.wording import nearest
from pv.errors import UsageError
from pv.source import resolve
from pv.source.project import Project, find_project
from pv.source.resolve import Unbound


def topics(suite: Contract) -> tuple[str, ...]:
    """Return the topics of a suite in the order of its claims, such as `GRAD` for TL-GRAD-001."""
    return tuple(dict.fromkeys(claim.id.partition("-")[2].rpartition("-")[0] for claim in suite.claims))


def expand_topics(suite: Contract, patterns: Sequence[str]) -> tuple[str, ...]:
    """Replace topics of the suite, such as `GRAD`, by patterns of their ids, such as `*-GRAD-*`."""
    suite_topics = topics(suite)
    return tuple(f"*-{pattern.upper()}-*" if pattern.upper() in suite_topics else pattern for pattern in patterns)


def same_claims() -> dict[str, tuple[str, ...]]:
    """Return for every claim of `training-run` the ids in its `same_as`: claims of other suites that mean the same."""
    (suite,) = load([suites()[OBSERVED]]).contracts
    return {claim.id: tuple(claim.options.get("same_as", ())) for claim in suite.falsifiers}


def claim_hint(suite: Contract, name: str) -> str:
    """Return a suggestion for a name that matches no claim of the suite."""
    near = nearest(name.upper(), [*topics(suite), *(claim.id for claim in suite.claims)])
    similar = f"did you mean {near!r}? " if near else ""
    return f"{similar}`pv explain {suite.id}` shows all claims; topics: {', '.join(topics(suite))}"


def suite_hint(name: str) -> str:
    """Return which suite has the claim `name`, with the command that tries the claim; "" if no suite has the claim."""
    for suite in _all_suites():
        if any(fnmatchcase(claim.id, name) for claim in suite.claims):
            option = "" if suite.id == "training-loop" else f" --suite {suite.id}"
            return f"the suite {suite.id} has this claim: `pv check SUBJECT{option} --only {name!r}`"
    return ""


def similar_suite_name(name: str) -> str:
    """Return the command that explains the suite, topic or claim with the most similar name; "" if none is similar."""
    commands: dict[str, str] = {suite_id: f"`pv explain {suite_id}`" for suite_id in suites()}
    for suite in _all_suites():
        commands |= {topic: f"`pv explain '*-{topic}-*'`" for topic in topics(suite)}
        # Suggest claims only for a name with the prefix of the suite, such as `TL-`.
        if name.startswith(suite.claims[0].id.partition("-")[0] + "-"):
            commands |= {claim.id: f"`pv explain {claim.id}`" for claim in suite.claims}
    near = name if name in commands else nearest_name(name, list(commands))
    return commands[near] if near else ""


def nearest_name(name: str, names: Sequence[str]) -> str:
    """Return the most similar name; prefer names that start with the text before the last hyphen of `name`."""
    prefix = name.rpartition("-")[0]
    preferred = [candidate for candidate in names if candidate.startswith(prefix)] if prefix else []
    return nearest(name, preferred or names)


def _all_suites() -> Iterator[Contract]:
    for path in suites().values():
        yield from load([path]).contracts


@dataclass(frozen=True, slots=True)
class ResolvedArguments:
    """The contracts and claims that the arguments of a command select.

    Attributes:
        paths: The files and folders of the contracts.
        claims: The ids of the claims; None for all claims of the contracts.
    """

    paths: tuple[Path, ...] = ()
    claims: tuple[str, ...] | None = None

    def select(self, contract: Contract) -> Contract:
        """Return a contract with only the selected claims."""
        if self.claims is None:
            return contract
        return replace(
            contract,
            falsifiers=tuple(falsifier for falsifier in contract.falsifiers if falsifier.id in self.claims),
            harnesses=tuple(harness for harness in contract.harnesses if harness.id in self.claims),
        )


def resolve_names(names: Sequence[str | Path], project: Project) -> ResolvedArguments:
    """Resolve paths and ids; ids may be glob patterns.

    If a name is a path and an id, the path is used, unless it is a folder without contracts, such as a package.
    Raise UsageError for a name that is neither a path nor an id.
    """
    # Loading the contracts of the project takes time, and only ids need it.
    if all(_may_hold_contracts(name) for name in names):
        return ResolvedArguments(tuple(map(Path, names)))
    loaded = load(path for path in project.contracts if path.exists())
    resolved = [_resolve_one(str(name), loaded) for name in names]
    paths = tuple(dict.fromkeys(path for argument in resolved for path in argument.paths))
    if all(argument.claims is None for argument in resolved):
        return ResolvedArguments(paths)
    claims: list[str] = []
    for argument in resolved:
        if argument.claims is not None:
            claims += argument.claims
        else:  # the name of a contract selects all its claims
            claims += [claim.id for contract in load(argument.paths).contracts for claim in contract.claims]
    return ResolvedArguments(paths, tuple(dict.fromkeys(claims)))


def ids() -> dict[str, str]:
    """Return the ids of all contracts and claims of the project of the working directory, with their descriptions."""
    project = find_project(Path.cwd())
    contracts = load(path for path in project.contracts if path.exists()).contracts
    claims = {claim.id: claim.rule for contract in contracts for claim in contract.claims}
    return {contract.id: contract.description for contract in contracts} | claims


def contract_id(name: str) -> str:
    """Return the id of the only contract in the file or folder `name`; `name` itself if there is no such file.

    Raise `UsageError` if the file or folder does not have exactly one valid contract.
    """
    if not _may_hold_contracts(name):
        return name
    contracts = load([name]).contracts
    if len(contracts) != 1:
        raise UsageError(f"{name} has {len(contracts)} valid contracts, expected one; `pv lint {name}` shows why")
    return contracts[0].id


def _may_hold_contracts(name: str | Path) -> bool:
    """Return whether a path exists, and if it is a folder, contains YAML files."""
    return any(Path(name).rglob("*.y*ml")) if is_folder(name) else os.path.lexists(name)


def _resolve_one(name: str, loaded: Loaded) -> ResolvedArguments:
    """Resolve one path or id, in this order: path with contracts, contract, claim, another path, suite."""
    if _may_hold_contracts(name):
        return ResolvedArguments((Path(name),))
    contracts = [contract for contract in loaded.contracts if fnmatchcase(contract.id, name)]
    # The id in a malformed file cannot be read, but most files have the id of their contract as name.
    refused = [finding.location.path for finding in loaded.findings if finding.severity is Severity.REFUSAL]
    paths = [contract.location.path for contract in contracts] + [path for path in refused if path.stem == name]
    if paths:
        return ResolvedArguments(tuple(paths))
    claims = [(contract, claim.id) for contract in loaded.contracts for claim in contract.claims]
    matching = [(contract, id_) for contract, id_ in claims if fnmatchcase(id_, name)]
    if matching:
        paths = [contract.location.path for contract, _ in matching]
        return ResolvedArguments(tuple(paths), tuple(id_ for _, id_ in matching))
    if os.path.lexists(name):
        return ResolvedArguments((Path(name),))
    if name in suites():
        return ResolvedArguments((suites()[name],))
    raise _unknown_name(name, loaded)


def _unknown_name(name: str, loaded: Loaded) -> UsageError:
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return UsageError(f"no such file or folder: {name}; name a contract file or a folder of contracts")
    contracts = [contract.id for contract in loaded.contracts]
    claims = [claim.id for contract in loaded.contracts for claim in contract.claims]
    hint = suite_hint(name)
    if not hint and (near := nearest(name, contracts) or nearest_name(name, claims)):
        hint = f"did you mean {near!r}?"
    if not hint:
        hint = "`pv list` shows all ids" if contracts else "the project has no contracts, `pv new` writes a first one"
    return UsageError(f"no such file, folder, contract or claim: {name}; {hint}")


def target_of(text: str, hint: str = "") -> Target:
    """Parse a target, `module` or `module:attribute`.

    Raise `UsageError`, ending with `hint`, for any other text, and for an attribute that starts with `_`.
    """
    target = Target.parse(text)
    attributes = target.attribute.split(".") if target.attribute else []
    is_dotted = all(part.isidentifier() for part in (*target.module.split("."), *attributes))
    if not is_dotted or any(part.startswith("_") for part in attributes):
        hint = hint or _with_semicolon(hyphen_hint(text))
        raise UsageError(f"invalid subject {text!r}: expected module or module:attribute{hint}")
    return target


def resolve_subject(contract: Contract, text: str, project: Project) -> Target:
    """Return the subject that a text names: one of the contract's declared subjects, or code of the project.

    Raise `UsageError` with a suggestion if there is no such subject.
    """
    declared = {name: other.target for other in contract.subjects for name in (str(other.target), other.name)}
    if text in declared:
        return declared[text]
    hint = _suggestion(contract, text, list(declared))
    target = target_of(text, hint)
    try:
        resolve.target_file(project, target)
    except Unbound as problem:
        raise UsageError(f"subject {text}: {problem}{hint}") from problem
    return target


def _suggestion(contract: Contract, text: str, declared: list[str]) -> str:
    near = nearest(text, [*declared, str(contract.subject)])
    if near:
        return f"; did you mean {near!r}?"
    names = ", ".join(other.name for other in contract.subjects) or "no other subject"
    return _with_semicolon(hyphen_hint(text)) + _with_semicolon(f"{contract.id} declares {names}")


def _with_semicolon(hint: str) -> str:
    return f"; {hint}" if hint else ""


def missing_package(package: str) -> str:
    """Return a text that says that a distribution is not installed; "" if it is installed or the name is empty."""
    if not package:
        return ""
    try:
        version(package)
    except PackageNotFoundError:
        return f"{package} is not installed"
    return ""


def must_be_installed(contract: Contract, target: Target, project: Project) -> None:
    """Raise `UsageError` if the contract says that `target` needs a distribution that is not installed."""
    for other in contract.subjects:
        if other.target == target and (reason := missing_package(other.package)):
            # Name the extra of the project that contains the distribution.
            file = project.root / "pyproject.toml"
            table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            extras: dict[str, list[str]] = table.get("project", {}).get("optional-dependencies", {})
            package = _normal_name(other.package)
            containing = [name for name, requirements in extras.items() if package in map(_normal_name, requirements)]
            extra = f" (extra {containing[0]})" if containing else ""
            raise UsageError(f"{reason}: pip install {other.package}{extra}")


def _normal_name(requirement: str) -> str:
    """Return the normalised name of a requirement's distribution."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()
