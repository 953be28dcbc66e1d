"""Read saved reports, and compare a report with its base: another report, or the contracts of a commit.

The contracts of a commit are read and not run, so such a base has no results.
"""

import functools
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

from pv.commands.declarations import find_weakenings, read_declarations
from pv.contract.load import is_folder, load_as, shown_path
from pv.contract.model import Target
from pv.contract.wording import FEW, count, listed
from pv.errors import UsageError
from pv.results import worktree
from pv.results.definitions import definitions
from pv.results.saved import report as saved
from pv.results.saved.changes import BaseComparison, Change, ChangeKind, FailOn, Hunk, compare, parse_diff
from pv.results.saved.merge import merge
from pv.results.verdict import ContractVerdict, Report, Status
from pv.source import resolve
from pv.source.project import Project, find_project
from pv.source.resolve import Unbound


def read_reports(paths: Sequence[str | Path], *, partial: bool = False) -> Report:
    """Read JSON reports of `pv validate --output json=FILE` and merge them.

    Args:
        paths: The files.
        partial: Accept that contracts and claims of the project are missing. By default, missing claims are undecided.

    Raises:
        UsageError: No file is named, a file is damaged or of another version, or the reports cannot be merged.
    """
    if not paths:
        raise UsageError("no report named: name files that `pv validate --output json=FILE` wrote")
    return merge({str(path): saved.load(Path(path)) for path in paths}, partial=partial)


GIT_LIMIT_S = 600
"""Limit on the wall time of a git command in seconds. It is long, because a partial clone may have to fetch files."""
CONTRACT_SUFFIXES = (".yaml", ".yml")


def compare_with_base(base: Report, now: Report, fail_on: str, start: Path | None = None) -> BaseComparison:
    """Compare a report with its base.

    Args:
        base: The report to compare with.
        now: The report of the current tree.
        fail_on: "weaker" or "never".
        start: A folder in the project (default: the working directory).

    Returns:
        The changes, the lines that changed since the base, and notes about parts that cannot be compared.
    """
    project = find_project(start or Path.cwd())
    hunks = _hunks(project, base.commit.rstrip("+")) if base.commit else {}
    notes: list[str] = []
    weakenings: list[Change] = []
    # The results of a saved report show which claims were not tried on an adapter. A commit has no results, so read the
    # declarations of changed adapters from their source.
    if not base.devices:
        notes.append("the base was not run: only its contracts are compared, not its results")
        for verdict, file in _changed_adapters(project, now, hunks):
            adapter_weakenings = _adapter_weakenings(project, base, verdict, file)
            if adapter_weakenings is None:
                hint = "only a comparison with a saved report shows whether fewer claims are tried"
                notes.append(f"{file} changed, the adapter of {verdict.contract.id}: {hint}")
            else:
                weakenings += adapter_weakenings
    is_gone = functools.partial(_is_gone, project)
    result = compare(base, now, fail_on=FailOn(fail_on), today=date.today(), is_gone=is_gone, further=weakenings)
    return replace(result, hunks=hunks, notes=(*result.notes, *notes, *_changed_tests(project, now, hunks)))


def _is_gone(project: Project, target: Target) -> bool:
    """Return whether the module of a target does not exist, or neither defines nor imports the name of the target."""
    try:
        resolve.target_file(project, target)
    except Unbound as problem:
        return problem.kind in ("file", "name")
    return False


def _changed_adapters(
    project: Project, now: Report, changed_files: Collection[str]
) -> Iterator[tuple[ContractVerdict, str]]:
    """Yield the verdict and the adapter's file of every contract of a suite whose adapter was changed."""
    for verdict in now.contracts:
        saved_definitions = verdict.definitions or {"subject": None, "claims": {}}
        # Only the claims of suites declare which features of the subject they need.
        if saved_definitions["subject"] and any("needs" in options for options in saved_definitions["claims"].values()):
            with suppress(Unbound):
                file = str(shown_path(resolve.target_file(project, Target.parse(saved_definitions["subject"]))))
                if file in changed_files:
                    yield verdict, file


def _adapter_weakenings(project: Project, base: Report, verdict: ContractVerdict, file: str) -> list[Change] | None:
    """Return the changes of an adapter's declarations since the base that reduce the tried claims or relax a tolerance.

    Args:
        project: The project.
        base: The contracts of the commit.
        verdict: The verdict on a contract of a suite.
        file: The file of the adapter.

    Returns:
        The changes; None if the adapter is new, or if its source does not show the declarations.
    """
    subject = Target.parse((verdict.definitions or {})["subject"])
    # git uses paths relative to the root of the project, reports use paths relative to the working directory.
    path = Path(file).resolve().relative_to(project.root).as_posix()
    before = _git(project, "show", f"{base.commit}:./{path}")
    if before is None:
        return None
    try:
        old = read_declarations(before.decode(), subject.attribute)
        new = read_declarations(Path(file).read_text(encoding="utf-8"), subject.attribute)
    except (SyntaxError, ValueError):
        return None
    if not (old.is_whole and new.is_whole):
        return None
    contract = verdict.contract
    weakenings = []
    for feature, text in find_weakenings(old, new):
        untried = sum(feature in claim.options.get("needs", ()) for claim in contract.falsifiers)
        claims = f": {count(untried, 'claim')} not tried" if untried else ""
        weakenings.append(
            Change(
                kind=ChangeKind.WEAKER,
                contract=contract.id,
                name="subject",
                text=f"less measured{claims}; {file}: {text}",
                location=contract.places.get("subject", contract.location),
            )
        )
    return weakenings


def _changed_tests(project: Project, now: Report, changed_files: Collection[str]) -> Iterator[str]:
    """Yield a note for every changed file in a folder with tests of claims, since weaker tests are not detected."""
    ids_by_folder: dict[Path, list[str]] = {}
    for verdict in now.contracts:
        for claim in verdict.contract.falsifiers:
            if claim.test is not None:
                folder = shown_path(project.root / claim.test.file).parent
                ids_by_folder.setdefault(folder, []).append(claim.id)
    for file in changed_files:
        if ids := ids_by_folder.get(Path(file).parent):
            yield f"{file} changed, with tests or faults of {listed(ids, FEW)}: a weaker test is not detected"


def _hunks(project: Project, commit: str) -> dict[str, tuple[Hunk, ...]]:
    """Return the lines that changed since a commit, by path of the file in reports; {} without git or the commit."""
    diff = ("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--no-prefix", "--relative")
    try:
        output = _git(project, "-c", "core.quotePath=false", *diff, commit, "--", ".")
    except UsageError:
        return {}  # a saved report can be compared without git
    hunks = parse_diff((output or b"").decode("utf-8", "replace"))
    return {str(shown_path(project.root / name)): hunks_of_file for name, hunks_of_file in hunks.items()}


def read_base(name: str, paths: Iterable[str | Path] = (), start: Path | None = None) -> Report:
    """Read the base of a comparison.

    Args:
        name: A JSON report or a git revision. For a revision, the base is its merge base with HEAD; without a common
            history, the base is the revision itself.
        paths: Contract files and folders to read, besides the contracts of the project.
        start: A folder in the project (default: the working directory).

    Returns:
        The report. For a revision it has contracts without results.

    Raises:
        UsageError: The name is neither a file nor a revision, the file is not a report, or git cannot be run.
    """
    if Path(name).is_file():
        return read_reports([name], partial=True)
    project = find_project(start or Path.cwd())
    commit = _commit(project, name)
    with tempfile.TemporaryDirectory() as folder:
        files = dict(_extract(project, commit, paths, Path(folder).resolve()))
        loaded = load_as(files)
    verdicts = [
        ContractVerdict(
            contract=contract,
            status=Status.UNDECIDED,
            results=(),
            definitions=definitions(contract),
            absent=f"read from the commit {commit[:12]}, not run",
        )
        for contract in loaded.contracts
    ]
    paths_by_id = {contract.id: str(contract.location.path) for contract in loaded.contracts}
    return Report(contracts=tuple(verdicts), findings=loaded.findings, commit=commit, project=paths_by_id)


def _commit(project: Project, name: str) -> str:
    """Return the commit to compare with: the merge base of a revision and HEAD, or the revision if there is none."""
    output = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if output is None:
        raise UsageError(
            f"unknown baseline {name!r}: neither a file nor a commit of {project.root}; "
            "write a report with `pv validate --output json=FILE`, or `git fetch` the branch"
        )
    commit = output.decode().strip()
    # With the merge base, commits that were added to the other branch later do not count as changes of this branch.
    common = _git(project, "merge-base", commit, "HEAD")
    return common.decode().strip() if common else commit


def _git(project: Project, *words: str) -> bytes | None:
    """Return the output of a git command; None if the command fails. Raise `UsageError` if git cannot be run."""
    try:
        return worktree.git(project.root, *words, limit_s=GIT_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"cannot read a baseline from git: {error}") from error


def _extract(project: Project, commit: str, paths: Iterable[str | Path], folder: Path) -> Iterator[tuple[Path, Path]]:
    """Write the contract files of a commit to a folder, and yield every file with its path in the project."""
    # The commit may have its contracts in other folders than the working tree. Its own [tool.pv] table names them.
    settings = _git(project, "show", f"{commit}:./pyproject.toml")
    if settings is not None:
        (folder / "pyproject.toml").write_bytes(settings)
    base_project = find_project(folder)
    declared = base_project.contracts if base_project.declared else ()
    folders = {path.relative_to(folder).as_posix() for path in declared}
    folders |= {path.relative_to(project.root).as_posix() for path in project.contracts}
    for path in map(Path, paths):
        is_contract = path.suffix.lower() in CONTRACT_SUFFIXES or is_folder(path)
        if is_contract and path.resolve().is_relative_to(project.root):
            folders.add(path.resolve().relative_to(project.root).as_posix())
    listed_files = _git(project, "ls-tree", "-r", "-z", "--name-only", commit, "--", *sorted(folders)) or b""
    for name in map(os.fsdecode, listed_files.split(b"\0")):
        if not name.lower().endswith(CONTRACT_SUFFIXES) or any(part.startswith(".") for part in name.split("/")):
            continue  # not a contract, or hidden
        text = _git(project, "show", f"{commit}:./{name}")
        if text is not None:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
            yield file, shown_path(project.root / name)
