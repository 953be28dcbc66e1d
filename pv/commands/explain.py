"""Collect the definition and the results of a claim, mutant or contract, without running anything."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
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
from pv.results.evidence import PROOFS, Recorded
from pv.results.explained import Explained
from pv.results.outcome import Result
from pv.results.reuse.cache import CacheEntry, ResultCache
from pv.results.reuse.dependencies import EVERYTHING
from pv.results.saved import report as saved
from pv.source.project import Project
from pv.source.resolve import Unbound, function

RECORDED = ("cuda", PROOFS)
"""The device whose results are recorded as evidence, and the name under which proofs are recorded."""


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
    # Suites are searched only if no contract of the project matches.
    files = [contract.location.path for contract in loaded.contracts if _has_match(contract, id)]
    if not files:
        files = [suite.location.path for suite in load(suites().values()).contracts if _has_match(suite, id)]
    if not files:
        raise UsageError(f"unknown id {id!r}: no lint code, contract, claim or mutant; {_hint(id, loaded)}")
    contracts, findings = check(files, project=project)  # lints only these: linting all takes seconds
    results: list[tuple[str, Result]] = []
    if report is not None:
        saved_report = saved.load(report)
        results = [(saved_report.started, item) for verdict in saved_report.contracts for item in verdict.results]
    return tuple(_explanations(id, project, contracts, findings, results))


def _ids(contract: Contract) -> tuple[str, ...]:
    """Return the ids of a contract and of its claims and mutants."""
    return (contract.id, *(claim.id for claim in contract.claims), *(mutant.id for mutant in contract.mutants))


def _has_match(contract: Contract, pattern: str) -> bool:
    return any(fnmatchcase(id_, pattern) for id_ in _ids(contract))


def _explanations(
    pattern: str,
    project: Project,
    contracts: Sequence[Contract],
    findings: Sequence[Finding],
    results: Sequence[tuple[str, Result]],
) -> Iterator[Explained]:
    """Yield the explanations of all contracts, claims and mutants whose id matches a pattern."""
    loop_claims = same_claims()
    for contract in contracts:
        contract_findings = tuple(f for f in findings if f.location.path == contract.location.path)
        if fnmatchcase(contract.id, pattern):
            yield Explained(contract=contract, score=score.read(project, contract)[0], findings=contract_findings)
        for claim in contract.claims:
            if not fnmatchcase(claim.id, pattern):
                continue
            # A claim about a script may correspond to claims of the training-loop suite; look it up by either id.
            id_ = claim.id.rpartition(".")[2]
            same = loop_claims.get(id_) or tuple(run_claim for run_claim, ids in loop_claims.items() if id_ in ids)
            locations = (claim.location, *claim.places.values())
            claim_findings = [
                f for f in contract_findings
                if claim.id in f.message or f.location in locations or _equation_at(f, contract) == claim.equation
            ]  # fmt: skip
            yield Explained(
                contract=contract,
                claim=claim,
                test=_test(project, claim),
                recorded=_recorded(project, contract, claim),
                last_results=tuple((started, item) for started, item in results if item.falsifier.id == claim.id),
                same_claims=same,
                script_rows=tuple(_script_rows(claim.id)) if contract.id == OBSERVED else (),
                findings=tuple(claim_findings),
            )
        for mutant in contract.mutants:
            if fnmatchcase(mutant.id, pattern):
                yield Explained(contract=contract, mutant=mutant)


def _script_rows(id_: str) -> Iterator[tuple[str, str]]:
    """Yield label and text of what a claim about a script looks for, and of when it is not reached."""
    from pv.suites.training_run.claims import CLAIMS

    # Each paragraph of the docstring, and each item of a numbered list, gets a row.
    for paragraph in re.split(r"\n\n|\n(?=\s*\d+\. )", CLAIMS[id_].function.__doc__ or ""):
        yield "looks for", " ".join(paragraph.split())
    yield "not reached", f"if {CLAIMS[id_].not_reached}"


def _equation_at(finding: Finding, contract: Contract) -> str:
    """Return the name of the equation in which a finding is located; "" if it is in another part of the contract."""
    # A finding belongs to the last claim, mutant or equation that starts at or above its line.
    names = {claim.location.line: "" for claim in contract.claims}
    names |= {mutant.location.line: "" for mutant in contract.mutants}
    names |= {equation.location.line: equation.name for equation in contract.equations}
    start = max((line for line in names if line <= finding.location.line), default=0)
    return names.get(start, "")


def _test(project: Project, claim: Falsifier) -> tuple[Location, str] | None:
    """Return location and first docstring line of a claim's function; None if it has no function."""
    with suppress(Unbound):
        if claim.test is not None:
            node = function(project, claim.test).node
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            return Location(Path(claim.test.file), node.lineno, 1), summary
    return None


def _recorded(project: Project, contract: Contract, claim: Falsifier) -> tuple[Recorded, ...]:
    """Return the recorded results of a claim; () if its code cannot be resolved, which lint reports."""

    # `store.read` calls this function only if a file of evidence exists, since digests of code take time.
    def fingerprints() -> dict[str, store.Fingerprint]:
        return {claim.id: store.fingerprint(project, contract, claim, contract.subject_of(claim))}

    records: list[Recorded] = []
    with suppress(Unbound, LookupError):
        for device in RECORDED:
            records += store.read(project, contract, device, fingerprints)[0].values()
    return tuple(records)


def _hint(id_: str, loaded: Loaded) -> str:
    """Return a hint for an unknown id: the first file that cannot be read, a similar id, or commands that list ids."""
    if refusals := [finding for finding in loaded.findings if finding.severity is Severity.REFUSAL]:
        return f"a contract cannot be read: {refusals[0]}"
    if near := nearest_name(id_, [known for contract in loaded.contracts for known in _ids(contract)]):
        return f"did you mean {near!r}?"
    if command := similar_suite_name(id_):
        return f"did you mean {command}?"
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


def reuse_statuses(names: list[str], project: Project | None = None) -> list[ReuseStatus]:
    """Return for every matching claim whether a validation would reuse its cached result, and if not, why.

    Args:
        names: Ids of claims, or glob patterns of ids.
        project: The project (default: the project of the working directory).

    Raises:
        UsageError: A name matches no claim.
    """
    project = project or project_of(())
    plan = plan_validation(project, Request(only=names))
    ids = [claim.id for contract in plan.contracts for claim in contract.claims]
    for name in names:
        if not any(fnmatchcase(id_, name) for id_ in ids):
            raise UsageError(f"no claim matches {name!r} (`pv list` shows all ids)")
    attempts = Attempts(plan.project, plan.subjects)
    with closing(ResultCache(project)) as cache:
        return [
            _reuse_status(attempts, cache, contract, claim)
            for contract in plan.contracts
            for claim in contract.claims
            if plan.selections[contract.id].runs(claim)
        ]


def _reuse_status(attempts: Attempts, cache: ResultCache, contract: Contract, claim: Falsifier) -> ReuseStatus:
    entry = cache.newest(claim.id)
    if entry is None:
        return ReuseStatus(claim=claim.id, reused=False, reasons=("no usable result is cached",))
    key = cache.key(attempts.clean(contract, claim).task)
    if cache.lookup(key) is not None:
        # The lookup makes its result the newest entry. The entry from before may be the result of another branch.
        entry = cache.newest(claim.id) or entry
        return ReuseStatus(claim=claim.id, reused=True, when=_when(entry))
    reasons = [f"another {name}" for name in entry.environment]
    reasons += [_describe(dependency) for dependency in entry.changed]
    # The key depends on task and environment; if the environment is the same, the task has changed.
    if entry.task != key and not entry.environment:
        reasons.insert(0, "its clause in the contract, or an option of the validation")
    reasons = reasons or ["its result is damaged"]
    return ReuseStatus(claim=claim.id, reused=False, when=_when(entry), reasons=tuple(reasons))


def _when(entry: CacheEntry) -> str:
    return datetime.fromtimestamp(entry.measured).isoformat(" ", "minutes")


def _describe(dependency: str) -> str:
    """Return a changed dependency, which the cache stores as its kind and its name, in words."""
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
        return (
            "a file of the project: the claim depends on every file, because the claim starts processes or shares them"
        )
    return rest
