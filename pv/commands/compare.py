"""Try the claims of one contract on several subjects, one after another."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from pv.commands.naming import contract_id, missing_package, resolve_subject
from pv.commands.plan import Request, project_of, read
from pv.commands.validate import Interrupted, validated
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

    A subject whose package is not installed is a column without results.

    Args:
        contract: A file, a suite, or the id of a contract.
        paths: Where the contract is searched (default: the contracts of the project).
        project: As for `pv.validate`.
        subjects: Names that the contract declares, its own subject, or any other `module` or `module:attribute`
            (default: the contract's own subject and all declared ones).
        only: Glob patterns over the ids of claims.
        examples: As for `pv.validate`.
        seed: As for `pv.validate`.
        jobs: As for `pv.validate`.
        spawn: As for `pv.validate`.
        strict: Whether a refuted claim of any subject fails the comparison, not only of the contract's own subject.
        on_progress: Called with the progress.

    Returns:
        The results, one column for each subject.

    Raises:
        UsageError: The contract, a subject or a claim is unknown; raised before anything runs.
        PvError: Another error that `pv.validate` raises, apart from `Interrupted`.
    """
    refuse_optimized()
    project = project or project_of(paths)
    # The contract may be named by its path, as a suite, or by an id of the project.
    file = suites().get(contract, Path(contract))
    paths, contract = paths or ([file] if file.is_file() else []), contract_id(contract)
    loaded_contract = _contract(contract, paths, project)
    ids = [claim.id for claim in loaded_contract.claims]
    for pattern in only:
        if not any(fnmatchcase(id_, pattern) for id_ in ids):
            raise UsageError(f"--only {pattern} matches no claim of {contract}; {did_you_mean(pattern, ids)}")
    # A subject may be named twice, once by name and once by target; equal columns are tried once.
    columns = list(dict.fromkeys(_columns(loaded_contract, subjects, project)))
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
    # All subjects share the workers' fork servers, since most of them load the same libraries.
    with PoolCache(jobs or default_jobs(), spawn=spawn) as pools:
        results, interrupted = _tried(columns, project, request, pools, on_progress)
    return Comparison(contract=loaded_contract, columns=tuple(results), strict=strict, interrupted=interrupted)


def _tried(
    columns: Sequence[Column], project: Project, request: Request, pools: PoolCache, on_progress: OnProgress | None
) -> tuple[list[Column], bool]:
    """Return the columns with their reports, and whether Ctrl-C interrupted the last one."""
    columns_tried: list[Column] = []
    for column in columns:
        subjects = {} if column.own else {request.contracts[0]: column.target}
        try:
            if not column.missing:
                request = replace(request, subjects=subjects)
                column = replace(column, report=validated(project, request, on_progress=on_progress, pools=pools))
            columns_tried.append(column)
        except Interrupted as stop:
            return [*columns_tried, replace(column, report=stop.report)], True
    return columns_tried, False


def _contract(id_: str, paths: Sequence[str | Path], project: Project) -> Contract:
    loaded = read(paths, project)
    matches = [contract for contract in loaded.contracts if contract.id == id_]
    if not matches:
        refused = "".join(f"\n{finding}" for finding in loaded.findings if finding.severity.value == "refusal")
        ids = ", ".join(contract.id for contract in loaded.contracts) or "none"
        raise UsageError(f"unknown contract {id_!r} (choose from {ids}){refused}")
    return matches[0]


def _columns(contract: Contract, names: Sequence[str], project: Project) -> Iterator[Column]:
    own_column = Column(name=str(contract.subject), target=str(contract.subject), own=True)
    declared: dict[str, Column] = {}
    for other in contract.subjects:
        missing, package = missing_package(other.package), other.package
        package = f"{package} {version(package)}" if package and not missing else package
        declared[other.name] = Column(name=other.name, target=str(other.target), package=package, missing=missing)
    by_target = {column.target: column for column in reversed([own_column, *declared.values()])}
    for text in names or [own_column.target, *declared]:
        yield (
            declared.get(text)
            or by_target.get(text)
            or Column(name=text, target=str(resolve_subject(contract, text, project)))
        )
