"""Collect the definition and the results of a claim, mutant or contract, without running anything."""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

from pv.commands.naming import nearest_name, same_claims, similar_suite_name
from pv.commands.plan import Request, check, plan_validation, project_of
from pv.contract.finding import Finding, Location, Severity
from pv.contract.load import Loaded, load
from pv.contract.model import Contract, Falsifier
from pv.contract.suites import OBSERVED, suites
from pv.errors import UsageError
from pv.execution.attempt import Attempts
from pv.mutation import score
from pv.results import store
from pv.results.explained import Explained
from pv.results.outcome import Result
from pv.results.reuse.cache import CacheEntry, ResultCache
from pv.results.reuse.dependencies import EVERYTHING
from pv.results.saved import report as saved
from pv.results.trial import PROOFS, Recorded
from pv.source.project import Project
from pv.source.resolve import Unbound, function

DEVICES = ("cuda", PROOFS)


def explain(
    id: str, *, paths: Sequence[str | Path] = (), project: Project | None = None, report: Path | None = None
) -> tuple[Explained, ...]:
    """Explain claims, mutants and contracts.

    Args:
        id: An id, or a glob pattern of ids.
        paths: Contract files and folders (default: the contracts of the project).
        project: As for `pv.validate`.
        report: A JSON report of `pv validate` with the last results.

    Raises:
        UsageError: No id matches, or the report cannot be read.
    """
    project = project or project_of(paths)
    loaded = load(path for path in paths or project.contracts if Path(path).exists())
    files = [contract.location.path for contract in loaded.contracts if _matching(id, _ids(contract))]
    files = files or [path for path in suites().values() for one in load([path]).contracts if _matching(id, _ids(one))]
    if not files:
        raise UsageError(f"unknown id {id!r}: no code, contract, claim or mutant; {_hint(id, loaded)}")
    contracts, findings = check(files, project=project)  # lints only these: linting all takes seconds
    results: list[tuple[str, Result]] = []
    if report is not None:
        saved_report = saved.load(report)
        results = [(saved_report.started, item) for verdict in saved_report.contracts for item in verdict.results]
    return tuple(_named(id, project, contracts, findings, results))


def _ids(contract: Contract) -> tuple[str, ...]:
    return (contract.id, *(claim.id for claim in contract.claims), *(mutant.id for mutant in contract.mutants))


def _matching(pattern: str, ids: Iterable[str]) -> bool:
    return any(fnmatchcase(id_, pattern) for id_ in ids)


def _named(
    pattern: str,
    project: Project,
    contracts: Sequence[Contract],
    findings: Sequence[Finding],
    results: Sequence[tuple[str, Result]],
) -> Iterator[Explained]:
    """Yield the explanations of all contracts, claims and mutants whose id matches a pattern."""
    ids_by_id = same_claims()
    for contract in contracts:
        contract_findings = tuple(f for f in findings if f.location.path == contract.location.path)
        if fnmatchcase(contract.id, pattern):
            yield Explained(contract=contract, score=score.read(project, contract)[0], findings=contract_findings)
        for claim in (item for item in contract.claims if fnmatchcase(item.id, pattern)):
            # The claims with the same meaning: of a loop for a claim about one run, and vice versa.
            id_ = claim.id.rpartition(".")[2]
            same = ids_by_id.get(id_, ()) or tuple(other for other, ids in ids_by_id.items() if id_ in ids)
            places = (claim.location, *claim.places.values())
            about = (
                f for f in contract_findings
                if claim.id in f.message or f.location in places or _equation(f, contract) == claim.equation
            )  # fmt: skip
            yield Explained(
                contract=contract,
                claim=claim,
                test=_test(project, claim),
                recorded=_recorded(project, contract, claim),
                last=tuple((started, item) for started, item in results if item.falsifier.id == claim.id),
                same=same,
                judged=tuple(_judged(claim.id)) if contract.id == OBSERVED else (),
                findings=tuple(about),
            )
        for mutant in contract.mutants:
            if fnmatchcase(mutant.id, pattern):
                yield Explained(contract=contract, mutant=mutant)


def _judged(id_: str) -> Iterator[tuple[str, str]]:
    """Yield what a claim about a script looks for, by the docstring of its function, and when it is not reached."""
    from pv.suites.training_run.claims import CLAIMS

    # Paragraphs, and the items of numbered lists within them, get a line each.
    for paragraph in re.split(r"\n\n|\n(?=\s*\d+\. )", CLAIMS[id_].function.__doc__ or ""):
        yield "looks for", " ".join(paragraph.split())
    yield "not reached", f"where {CLAIMS[id_].needs}"


def _equation(finding: Finding, contract: Contract) -> str:
    """Return the name of the equation that a finding is located in; "" if it is in another part of the contract."""
    # A finding belongs to the last claim, mutant or equation that starts at or above its line.
    starts = {claim.location.line: "" for claim in contract.claims}
    starts |= {mutant.location.line: "" for mutant in contract.mutants}
    starts |= {equation.location.line: equation.name for equation in contract.equations}
    return starts.get(max((line for line in starts if line <= finding.location.line), default=0), "")


def _test(project: Project, claim: Falsifier) -> tuple[Location, str] | None:
    """Return location and first docstring line of a claim's function; None if it has no function."""
    with suppress(Unbound):
        if claim.test is not None:
            node = function(project, claim.test).node
            says = (ast.get_docstring(node) or "").partition("\n")[0]
            return Location(Path(claim.test.file), node.lineno, 1), says
    return None


def _recorded(project: Project, contract: Contract, claim: Falsifier) -> tuple[Recorded, ...]:
    """Return the recorded results of a claim; () if its code cannot be resolved, which lint reports."""

    def fingerprints() -> dict[str, store.Fingerprint]:
        return {claim.id: store.fingerprint(project, contract, claim, contract.subject_of(claim))}

    records: list[Recorded] = []
    with suppress(Unbound, LookupError):
        for device in DEVICES:
            records += store.read(project, contract, device, fingerprints)[0].values()
    return tuple(records)


def _hint(id_: str, loaded: Loaded) -> str:
    if refused := [finding for finding in loaded.findings if finding.severity is Severity.REFUSAL]:
        return f"a contract cannot be read: {refused[0]}"
    ids = [known_id for contract in loaded.contracts for known_id in _ids(contract)]
    if near := nearest_name(id_, ids):
        return f"did you mean {near!r}?"
    if shows := similar_suite_name(id_):
        return f"did you mean {shows}?"
    return f"`pv list` shows all ids, `pv lint --codes` all codes, `pv explain SUITE` a suite ({', '.join(suites())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseStatus:
    """Whether the cached result of one claim would be reused, and why not.

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


def why(names: list[str], project: Project | None = None) -> list[ReuseStatus]:
    """Return for every matching claim whether its result would be reused.

    Args:
        names: Ids of claims, or glob patterns of ids.
        project: The project (default: the project of the working directory).

    Raises:
        UsageError: A name matches no claim.
    """
    project = project or project_of(())
    chosen = plan_validation(project, Request(only=names))
    ids = [claim.id for contract in chosen.contracts for claim in contract.claims]
    for name in names:
        if not any(fnmatchcase(id_, name) for id_ in ids):
            raise UsageError(f"no claim matches {name!r} (`pv list` shows all ids)")
    attempts = Attempts(chosen.project, chosen.subjects)
    with closing(ResultCache(project)) as cache:
        return [
            _why(attempts, cache, contract, claim)
            for contract in chosen.contracts
            for claim in filter(chosen.selections[contract.id].runs, contract.claims)
        ]


def _why(attempts: Attempts, cache: ResultCache, contract: Contract, claim: Falsifier) -> ReuseStatus:
    """Return whether the result of one claim would be reused, and the reasons if not."""
    entry = cache.newest(claim.id)
    if entry is None:
        return ReuseStatus(claim=claim.id, reused=False, reasons=("no usable result is cached",))
    key = cache.key(attempts.clean(contract, claim).task)
    if cache.lookup(key) is not None:
        # The lookup makes its result the newest entry: the entry above may be the result of another branch.
        entry = cache.newest(claim.id) or entry
        return ReuseStatus(claim=claim.id, reused=True, when=_when(entry))
    reasons = [*(f"another {name}" for name in entry.environment), *map(_describe, entry.changed)]
    if entry.task != key and not entry.environment:
        reasons.insert(0, "its clause in the contract, or an option of the validation")
    return ReuseStatus(
        claim=claim.id, reused=False, when=_when(entry), reasons=tuple(reasons) or ("its result is damaged",)
    )


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
