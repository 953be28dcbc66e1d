"""Collect what is known about a claim, mutant or contract, without running anything."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pv.commands.naming import same_claims, similar_suite_name
from pv.commands.plan import check, project_of
from pv.contract.claims import Falsifier
from pv.contract.finding import Finding, Location, Severity
from pv.contract.load import Loaded, load
from pv.contract.model import Contract
from pv.contract.mutants import Mutant
from pv.contract.suites import OBSERVED, suites
from pv.contract.wording import nearest
from pv.errors import UsageError
from pv.mutation import score
from pv.results import store
from pv.results.outcome import Result
from pv.results.saved import report as saved
from pv.results.trial import PROOFS, MutationScore, Recorded
from pv.source.project import Project
from pv.source.resolve import Unbound, function

DEVICES = ("cuda", PROOFS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The explanation of a claim (`claim` is set), of a mutant (`mutant` is set), or of a whole contract.

    Attributes:
        contract: The contract.
        claim: The claim.
        mutant: The mutant.
        test: Location and first line of the docstring of the claim's function.
        recorded: Results of the claim in the evidence folder.
        last: Start of a validation and result of the claim in its report.
        score: The recorded mutation score of the contract.
        findings: Lint findings.
        same: Ids of claims of another suite with the same meaning.
        judged: Label and text rows of a claim about a script: what it looks for, and when it is not reached.
    """

    contract: Contract
    claim: Falsifier | None = None
    mutant: Mutant | None = None
    test: tuple[Location, str] | None = None
    recorded: tuple[Recorded, ...] = ()
    last: tuple[tuple[str, Result], ...] = ()
    score: MutationScore | None = None
    findings: tuple[Finding, ...] = ()
    same: tuple[str, ...] = ()
    judged: tuple[tuple[str, str], ...] = ()


def explain(
    id: str, *, paths: Sequence[str | Path] = (), project: Project | None = None, report: Path | None = None
) -> tuple[Explained, ...]:
    """Explain claims, mutants and contracts.

    Args:
        id: An id, or a glob pattern of ids.
        paths: Contract files and folders (default: those of the project).
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
    results = _results(report) if report is not None else []
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
    for contract in contracts:
        mine = tuple(f for f in findings if f.location.path == contract.location.path)
        if fnmatchcase(contract.id, pattern):
            yield Explained(contract=contract, score=score.read(project, contract)[0], findings=mine)
        for claim in (item for item in contract.claims if fnmatchcase(item.id, pattern)):
            yield Explained(
                contract=contract,
                claim=claim,
                test=_test(project, claim),
                recorded=_recorded(project, contract, claim),
                last=tuple((started, item) for started, item in results if item.falsifier.id == claim.id),
                same=_same(claim.id.rpartition(".")[2]),
                judged=tuple(_judged(claim.id)) if contract.id == OBSERVED else (),
                findings=tuple(f for f in mine if _is_about(f, claim) or _equation(f, contract) == claim.equation),
            )
        yield from (
            Explained(contract=contract, mutant=mutant)
            for mutant in contract.mutants
            if fnmatchcase(mutant.id, pattern)
        )


def _same(id_: str) -> tuple[str, ...]:
    """Return the ids of the claims with the same meaning: of a loop for a claim about one run, and vice versa."""
    ids_by_id = same_claims()
    return ids_by_id.get(id_, ()) or tuple(other for other, same in ids_by_id.items() if id_ in same)


def _judged(id_: str) -> Iterator[tuple[str, str]]:
    """Yield what a claim about a script looks for, by the docstring of its function, and when it is not reached."""
    from pv.suites.training_run.claims import CLAIMS

    for paragraph in (CLAIMS[id_].function.__doc__ or "").split("\n\n"):
        yield "looks for", " ".join(paragraph.split())
    yield "not reached", f"where {CLAIMS[id_].needs}"


def _is_about(finding: Finding, claim: Falsifier) -> bool:
    return claim.id in finding.message or finding.location in (claim.location, *claim.places.values())


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


def _results(report: Path) -> list[tuple[str, Result]]:
    read = saved.load(report)
    return [(read.started, result) for verdict in read.contracts for result in verdict.results]


def _hint(id_: str, loaded: Loaded) -> str:
    if refused := [finding for finding in loaded.findings if finding.severity is Severity.REFUSAL]:
        return f"a contract cannot be read: {refused[0]}"
    ids = [known_id for contract in loaded.contracts for known_id in _ids(contract)]
    start = id_.rpartition("-")[0]
    near = nearest(id_, [known_id for known_id in ids if start and known_id.startswith(start)] or ids)
    if near:
        return f"did you mean {near!r}?"
    if shows := similar_suite_name(id_):
        return f"did you mean {shows}?"
    return f"`pv list` shows all ids, `pv lint --codes` all codes, `pv explain SUITE` a suite ({', '.join(suites())})"
