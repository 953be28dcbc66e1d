"""`pv why`: explains why the result of a claim is reused, or what has changed since it was measured."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from pv.commands.plan import Plan, Request, plan_validation, project_of
from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.errors import UsageError
from pv.execution.attempt import Attempts
from pv.results.reuse.cache import CacheEntry, ResultCache
from pv.results.reuse.dependencies import EVERYTHING
from pv.source.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer for one claim.

    Attributes:
        claim: The id of the claim.
        reused: Whether a validation would reuse a cached result.
        when: When the newest cached result was measured, "" if there is none.
        reasons: Why the result is not reused; empty if it is.
    """

    claim: str
    reused: bool
    when: str = ""
    reasons: tuple[str, ...] = ()


def why(names: list[str], project: Project | None = None) -> list[Why]:
    """Return for every matching claim whether its result would be reused.

    Args:
        names: Ids of claims, or glob patterns of ids.
        project: The project (default: that of the working directory).

    Raises:
        UsageError: A name matches no claim.
    """
    project = project or project_of(())
    chosen = plan_validation(project, Request(only=names))
    ids = [claim.id for contract in chosen.contracts for claim in contract.claims]
    for name in names:
        if not any(fnmatchcase(id_, name) for id_ in ids):
            raise UsageError(f"no claim matches {name!r} (`pv list` shows all ids)")
    with closing(ResultCache(project)) as cache:
        return list(_answers(chosen, cache))


def _answers(chosen: Plan, cache: ResultCache) -> Iterator[Why]:
    attempts = Attempts(chosen.project, chosen.subjects)
    for contract in chosen.contracts:
        for claim in filter(chosen.selections[contract.id].runs, contract.claims):
            yield _why(attempts, cache, contract, claim)


def _why(attempts: Attempts, cache: ResultCache, contract: Contract, claim: Falsifier) -> Why:
    entry = cache.newest(claim.id)
    if entry is None:
        return Why(claim=claim.id, reused=False, reasons=("no usable result is cached",))
    key = cache.key(attempts.clean(contract, claim).task)
    if cache.lookup(key) is not None:
        # The lookup makes its result the newest: it may be one of another branch than the entry above.
        entry = cache.newest(claim.id) or entry
        return Why(claim=claim.id, reused=True, when=_when(entry))
    reasons = [*(f"another {name}" for name in entry.environment), *map(_describe, entry.changed)]
    if entry.task != key and not entry.environment:
        reasons.insert(0, "its clause in the contract, or an option of the validation")
    return Why(claim=claim.id, reused=False, when=_when(entry), reasons=tuple(reasons) or ("its result is damaged",))


def _when(entry: CacheEntry) -> str:
    return datetime.fromtimestamp(entry.measured).isoformat(" ", "minutes")


def _describe(dependency: str) -> str:
    """Return a changed dependency in words."""
    kind, _, rest = dependency.partition(" ")
    file, _, function = rest.rpartition(":")
    match kind:
        case "function":
            return f"{file}: the function {function}"
        case "import":
            return f"{rest}: code that runs when it is imported"
        case "docs" | "shown-docs":
            return f"{rest}: docstrings, which code reads"
        case "constants":
            return f"{rest}: its numbers and texts, which are tried as examples"
        case "entry":
            return f"{rest}: whether it exists, its kind or its size"
        case "opened":
            return f"{rest}: it was opened while the claim ran, by native code or by another claim"
        case "listed":
            return f"{rest}/: files were added or removed, and code lists this folder"
        case "metadata":
            return f"{rest}/: metadata of packages was added or removed"
        case "searched":
            return f"{json.loads(rest)[0]}/: a module of a name that code imports was added or removed"
        case "module":
            return f"the file that {rest} is loaded from"
    if dependency == EVERYTHING:
        return "a file of the project: every file counts, because it starts or shares processes"
    return rest
