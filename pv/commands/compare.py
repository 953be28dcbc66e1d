"""Try the claims of one contract on several subjects (`pv compare`)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from pv.commands.naming import contract_id, missing_package, resolve_subject
from pv.commands.plan import Request, project_of, read
from pv.commands.validate import Interrupted, run_validation
from pv.contract.finding import Severity
from pv.contract.model import Contract
from pv.contract.suites import suites
from pv.contract.wording import did_you_mean
from pv.errors import UsageError
from pv.execution.consumers import OnProgress
from pv.results.comparison import Column, Comparison
from pv.source.project import Project
from pv.workers.pool import PoolCache, default_jobs, refuse_optimized


def compare(
    contract: str,
    *,
    paths: Sequence[str | Path] = (),
    project: Project | None = None,
    subjects: Sequence[str] = (),
    only: Sequence[str] = (),
    examples: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    spawn: bool = False,
    strict: bool = False,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Try the claims of a contract on several subjects, on the CPU and without mutants.

    If the package of a subject is not installed, the column of the subject has no results.

    Args:
        contract: A contract file, a suite, or the id of a contract.
        paths: Files and folders in which the id is looked up (default: the contracts of the project).
        project: As for `pv.validate`.
        subjects: Names of declared subjects, or `module` or `module:attribute` (default: the contract's own subject and
            all declared subjects).
        only: Glob patterns over the ids of claims.
        examples: As for `pv.validate`.
        seed: As for `pv.validate`.
        jobs: As for `pv.validate`.
        spawn: As for `pv.validate`.
        strict: Fail the comparison for a refuted claim of any subject, not only of the contract's own subject.
        on_progress: Called with the progress.

    Returns:
        The results, one column for every subject; after an interrupt, without the subjects that were not started.

    Raises:
        UsageError: The contract, a subject or a claim is unknown; raised before anything runs.
        PvError: Another error that `pv.validate` raises, except `Interrupted`.
    """
    refuse_optimized()
    project = project or project_of(paths)
    # The contract may be named by its path, as a suite, or by an id of the project.
    file = suites().get(contract, Path(contract))
    if not paths and file.is_file():
        paths = [file]
    loaded_contract = _find_contract(contract_id(contract), paths, project)
    ids = [claim.id for claim in loaded_contract.claims]
    for pattern in only:
        if not any(fnmatchcase(id_, pattern) for id_ in ids):
            raise UsageError(f"--only {pattern} matches no claim of {loaded_contract.id}; {did_you_mean(pattern, ids)}")
    # A subject that is requested by name and by target has two equal columns, and is tried once.
    columns = dict.fromkeys(_columns(loaded_contract, subjects, project))
    request = Request(
        paths=[loaded_contract.location.path],
        only=only,
        contracts=[loaded_contract.id],
        devices=["cpu"],
        mutants=False,
        examples=examples,
        seed=seed,
        jobs=jobs,
        spawn=spawn,
    )
    results: list[Column] = []
    interrupted = False
    # All subjects share the fork servers, because most subjects load the same libraries.
    with PoolCache(jobs or default_jobs(), spawn=spawn) as pools:
        for column in columns:
            if column.missing:
                results.append(column)
                continue
            subject_request = replace(request, subjects={} if column.own else {loaded_contract.id: column.target})
            try:
                report = run_validation(project, subject_request, on_progress=on_progress, pools=pools)
            except Interrupted as stop:
                report, interrupted = stop.report, True
            results.append(replace(column, report=report))
            if interrupted:
                break
    return Comparison(contract=loaded_contract, columns=tuple(results), strict=strict, interrupted=interrupted)


def _find_contract(id_: str, paths: Sequence[str | Path], project: Project) -> Contract:
    """Return the contract with an id. If there is none, raise `UsageError` that also lists unreadable files."""
    loaded = read(paths, project)
    for contract in loaded.contracts:
        if contract.id == id_:
            return contract
    refusals = "".join(f"\n{finding}" for finding in loaded.findings if finding.severity is Severity.REFUSAL)
    ids = ", ".join(contract.id for contract in loaded.contracts) or "none"
    raise UsageError(f"unknown contract {id_!r} (choose from {ids}){refusals}")


def _columns(contract: Contract, texts: Sequence[str], project: Project) -> Iterator[Column]:
    """Yield a column without results for every requested subject.

    Args:
        contract: The contract.
        texts: Names of declared subjects, or any targets; if empty, the own subject and all declared subjects.
        project: The project of the subjects.
    """
    own_column = Column(name=str(contract.subject), target=str(contract.subject), own=True)
    columns: dict[str, Column] = {}
    for subject in contract.subjects:
        package, missing = subject.package, missing_package(subject.package)
        if package and not missing:
            package = f"{package} {version(package)}"
        columns[subject.name] = Column(name=subject.name, target=str(subject.target), package=package, missing=missing)
    default = [own_column.target, *columns]
    # A name takes precedence over an equal target. If subjects have the same target, the own subject comes first, then
    # the subject that is declared first.
    for column in (own_column, *columns.values()):
        columns.setdefault(column.target, column)
    for text in texts or default:
        yield columns.get(text) or Column(name=text, target=str(resolve_subject(contract, text, project)))
