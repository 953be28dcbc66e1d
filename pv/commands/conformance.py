"""Try the claims of a conformance suite on a subject, such as a trainer or an optimizer (`pv check SUBJECT`)."""

from collections.abc import Sequence
from pathlib import Path

from pv.commands.naming import expand_topics, missing_package
from pv.commands.plan import Request, read
from pv.commands.validate import run_validation
from pv.contract.suites import OBSERVED, adapter_suites
from pv.contract.wording import did_you_mean
from pv.engines.replay import read as read_example
from pv.errors import UsageError
from pv.execution.consumers import OnProgress
from pv.results.verdict import Report
from pv.source.project import Project, find_project
from pv.workers.pool import refuse_optimized

DEFAULT_SUITE = "training-loop"


def check(
    subject: str,
    *,
    suite: str = DEFAULT_SUITE,
    project: Project | None = None,
    only: Sequence[str] = (),
    jobs: int | None = None,
    seed: int = 0,
    replay: str = "",
    fail_fast: bool = False,
    spawn: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Try the claims of a suite on a subject.

    Args:
        subject: A name that the suite declares, or `module:attribute` of the project. If the package of a declared
            subject is not installed, all claims are undecided.
        suite: The name of the suite.
        project: The project (default: the project of the working directory).
        only: Glob patterns over the ids of claims, or topics such as `GRAD`.
        jobs: As for `pv.validate`.
        seed: As for `pv.validate`.
        replay: As for `pv.validate`.
        fail_fast: As for `pv.validate`.
        spawn: As for `pv.validate`.
        on_progress: Called with the progress.

    Returns:
        The report.

    Raises:
        UsageError: The suite or the subject is unknown.
        PvError: Another error that `pv.validate` raises.
    """
    refuse_optimized()
    if suite == OBSERVED:
        raise UsageError(f"the suite {suite!r} judges a command, not a subject: pv check -- python train.py")
    project = project or find_project(Path.cwd())
    files = adapter_suites()
    if suite not in files:
        raise UsageError(f"unknown suite {suite!r}; {did_you_mean(suite, files)}")
    file = files[suite]
    (contract,) = read([file], project).contracts
    # A suite declares the adapters that `pv` has for released trainers; their packages are extras of `pv`.
    packages = [other.package for other in contract.subjects if other.name == subject]
    reasons = [f"{text}: pip install 'pv-contracts[{name}]'" for name in packages if (text := missing_package(name))]
    request = Request(
        paths=[file],
        only=expand_topics(contract, only),
        subjects={suite: subject},
        cannot_try_reason="".join(reasons),
        command=f"pv check {subject}" + (f" --suite {suite}" if suite != DEFAULT_SUITE else ""),
        replay=read_example(replay),
        mutants=False,
        jobs=jobs,
        fail_fast=fail_fast,
        seed=seed,
        spawn=spawn,
    )
    return run_validation(project, request, replay, on_progress=on_progress)
