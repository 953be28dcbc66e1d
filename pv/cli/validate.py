"""The commands that run the claims of contracts: validate, compare, mutate."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pv.cli.options import COMPARE, MUTATE, VALIDATE
from pv.commands.terminal import (
    parse_output,
    parse_subjects,
    print_text,
    progress_line,
    repository_folder,
    terminal_width,
    uses_color,
    without_garbage_collection,
    write_report,
)
from pv.report import COMPARISON_FORMATS, MAX_BYTES, formats, render

if TYPE_CHECKING:
    from pv.results.saved.changes import BaseComparison
    from pv.results.verdict import Report


@click.command()
@VALIDATE
def validate(
    form: str,
    outputs: Sequence[str],
    subjects: Sequence[str],
    verbose: bool,
    dry_run: bool,
    baseline: str | None,
    fail_on: str,
    **options: Any,
) -> None:
    """Test the claims of contracts.

    Name contract files, folders, or ids of contracts or claims (default: the contracts of the project). Every falsifier
    runs in its own worker process. A falsifier that holds must then kill its mutants.
    """
    from pv.commands.report_cache import ReportCache

    if dry_run:
        _dry_run(form, outputs, parse_subjects(subjects), options)
    files = [parse_output(text, formats()) for text in outputs]
    base = _read_base(baseline, options["paths"])
    # An unchanged project needs neither workers nor lint: the whole report is cached.
    cache = ReportCache({**options, "subjects": parse_subjects(subjects)})
    if (cached := cache.lookup()) is not None:
        print_and_exit(cached, form, files, verbose, _compare(base, cached, fail_on, options["paths"]))
    from pv.commands.validate import Interrupted
    from pv.commands.validate import validate as run

    with progress_line() as on_progress, without_garbage_collection():
        try:
            report = run(subjects=parse_subjects(subjects), on_progress=on_progress, **options)
        except Interrupted as stop:
            report = stop.report
    cache.store(report, render(report, "json"))
    print_and_exit(report, form, files, verbose, _compare(base, report, fail_on, options["paths"]))


def _read_base(baseline: str | None, paths: Sequence[Path]) -> "Report | None":
    """Return the report of `--baseline`, None without it. It is read first, so that a wrong name fails early."""
    if baseline is None:
        return None
    from pv.commands.base_report import read_base
    from pv.commands.plan import project_of

    return read_base(baseline, paths, project_of(paths).root)


def _compare(base: "Report | None", report: "Report", fail_on: str, paths: Sequence[Path]) -> "BaseComparison | None":
    """Compare a report with its base; return None if there is no base."""
    if base is None:
        return None
    from pv.commands.base_report import compare_with_base
    from pv.commands.plan import project_of

    return compare_with_base(base, report, fail_on, project_of(paths).root)


def print_and_exit(
    report: "Report",
    form: str,
    files: Sequence[tuple[str, Path]],
    verbose: bool,
    compared: "BaseComparison | None" = None,
    max_bytes: int = MAX_BYTES,
) -> NoReturn:
    """Print a report, write its files, and exit.

    Args:
        report: The report.
        form: The format on standard output.
        files: Pairs of a format and the file to write in this format.
        verbose: Show all details.
        compared: The comparison with a base.
        max_bytes: Maximum size of Markdown.
    """
    text = partial(render, report, verbose=verbose, folder=repository_folder(), compared=compared, max_bytes=max_bytes)
    print_text(text(form, color=uses_color(), width=terminal_width()))
    for kind, file in files:
        write_report(file, text(kind))
    sys.exit(report.exit_code if compared is None else compared.exit_code(report))


def _dry_run(form: str, outputs: Sequence[str], subjects: dict[str, str], options: Mapping[str, Any]) -> NoReturn:
    """Print the tasks that a validation would run, and exit."""
    from pv.commands.dry_run import dry_run as build
    from pv.report.listing import dry_run_json, dry_run_text

    if form not in ("text", "json") or outputs or options["record"] or options["replay"]:
        raise click.UsageError("--dry-run takes --format text or json, and neither --output, --record nor --replay")
    result = build(
        options["paths"],
        subjects=subjects,
        only=options["only"],
        contracts=options["contracts"],
        devices=options["devices"],
        mutants=options["mutants"],
        shard=options["shard"],
    )
    print_text(dry_run_json(result) if form == "json" else dry_run_text(result))
    sys.exit(result.exit_code)


@click.command()
@COMPARE
def compare(
    contract: str,
    form: str,
    outputs: Sequence[str],
    paths: Sequence[Path],
    subjects: Sequence[str],
    only: Sequence[str],
    jobs: int | None,
    examples: int | None,
    seed: int,
    strict: bool,
    spawn: bool,
) -> None:
    """Test several subjects against one contract.

    CONTRACT is a file, a suite, or an id in the named files and folders (default: the contracts of the project). Exit
    code 1 if the contract's own subject fails or a result is an error; with --strict, also if another subject is
    falsified.
    """
    from pv.commands.compare import compare as run
    from pv.report.matrix import render

    files = [parse_output(text, COMPARISON_FORMATS) for text in outputs]
    with progress_line() as on_progress:
        comparison = run(
            contract,
            paths=paths,
            subjects=subjects,
            only=only,
            jobs=jobs,
            examples=examples,
            seed=seed,
            strict=strict,
            spawn=spawn,
            on_progress=on_progress,
        )
    print_text(render(comparison, form, width=terminal_width()))
    for kind, file in files:
        write_report(file, render(comparison, kind))
    sys.exit(comparison.exit_code)


@click.command()
@MUTATE
def mutate(
    form: str,
    names: Sequence[str],
    paths: Sequence[Path],
    sample: int | None,
    seed: int,
    widely: bool,
    modules: Sequence[str],
    jobs: int | None,
    record: bool,
    fresh: bool,
    spawn: bool,
) -> None:
    """Generate mutants of the covered code and list the survivors.

    Name contracts, by id or file, to use all their falsifiers; or name falsifiers to use only these (default: all
    contracts).
    """
    import time

    from pv.commands.mutate import mutate as run
    from pv.mutation import summary

    started = time.monotonic()
    with progress_line() as on_progress:
        results = run(
            names,
            paths=paths,
            sample=sample,
            seed=seed,
            widely=widely,
            modules=modules,
            jobs=jobs,
            record=record,
            fresh=fresh,
            spawn=spawn,
            on_progress=on_progress,
        )
    seconds = time.monotonic() - started
    print_text(summary.data(results, seconds) if form == "json" else summary.text(results, seconds))
    sys.exit(summary.exit_code(results))


COMMANDS = (validate, compare, mutate)
