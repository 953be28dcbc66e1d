"""The commands that run the claims of contracts: validate, compare, mutate."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from pv.cli.options import COMPARE, MUTATE, VALIDATE
from pv.commands.terminal import folder, live, output, pairs, print_whole, screen, uncollected, write
from pv.report import COMPARISON_FORMATS, formats, render


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
        _dry_run(form, outputs, pairs(subjects), options)
    files = [output(text, formats()) for text in outputs]
    base = _base(baseline, options["paths"])
    cache = ReportCache({**options, "subjects": pairs(subjects)})
    if (cached := cache.lookup()) is not None:
        print_and_exit(cached, form, files, verbose, _compared(base, cached, fail_on, options["paths"]))
    from pv.commands.validate import Interrupted
    from pv.commands.validate import validate as run

    with live() as on_progress, uncollected():
        try:
            report = run(subjects=pairs(subjects), on_progress=on_progress, **options)
        except Interrupted as stop:
            report = stop.report
    cache.store(report, render(report, "json"))
    print_and_exit(report, form, files, verbose, _compared(base, report, fail_on, options["paths"]))


def _base(baseline: str | None, paths: Sequence[Path]) -> Any:
    """Read the base of a comparison; None without `--baseline`. An unknown base stops the command early."""
    if baseline is None:
        return None
    from pv.commands.baseline import read
    from pv.commands.plan import project_of

    return read(baseline, paths, project_of(paths).root)


def _compared(base: Any, report: Any, fail_on: str, paths: Sequence[Path]) -> Any:
    if base is None:
        return None
    from pv.commands.baseline import compared
    from pv.commands.plan import project_of

    return compared(base, report, fail_on, project_of(paths).root)


def print_and_exit(
    report: Any, form: str, files: Sequence[tuple[str, Path]], verbose: bool, compared: Any = None
) -> NoReturn:
    """Print a report, write its files, and exit."""
    options: dict[str, Any] = {"verbose": verbose, "folder": folder(), "compared": compared}
    print_whole(render(report, form, **screen(), **options))
    for kind, file in files:
        write(file, render(report, kind, **options))
    sys.exit(report.exit_code if compared is None else compared.exit_code(report))


def _dry_run(form: str, outputs: Sequence[str], subjects: dict[str, str], options: dict[str, Any]) -> None:
    """Print the tasks that a validation would run, and exit."""
    from pv.commands.dry_run import dry_run as build
    from pv.report.dry_run import data, text

    if form not in ("text", "json") or outputs or options["record"] or options["replay"]:
        raise click.UsageError("--dry-run takes --format text or json, and neither --output, --record nor --replay")
    names = ("paths", "only", "contracts", "devices", "mutants", "shard")
    result = build(subjects=subjects, **{name: options[name] for name in names})
    print_whole(data(result) if form == "json" else text(result))
    sys.exit(result.exit_code)


@click.command()
@COMPARE
def compare(contract: str, form: str, outputs: Sequence[str], **options: Any) -> None:
    """Test several subjects against one contract.

    CONTRACT is a file, a suite, or an id, searched among the named files and folders (default: the contracts of the
    project). Exit code 1 if the contract's own subject fails or a result is an error; with --strict, also if another
    subject is falsified.
    """
    from pv.commands.compare import compare as run
    from pv.report.matrix import render

    files = [output(text, COMPARISON_FORMATS) for text in outputs]
    with live() as on_progress:
        comparison = run(contract, on_progress=on_progress, **options)
    print_whole(render(comparison, form, width=shutil.get_terminal_size().columns))
    for kind, file in files:
        write(file, render(comparison, kind))
    sys.exit(comparison.exit_code)


@click.command()
@MUTATE
def mutate(form: str, **options: Any) -> None:
    """Generate mutants of the covered code and list the survivors.

    Name contracts, by id or file, to use all their falsifiers, or falsifiers to use only those (default: all
    contracts).
    """
    import time

    from pv.commands.mutate import mutate as run
    from pv.mutation import summary

    started = time.monotonic()
    with live() as on_progress:
        results = run(on_progress=on_progress, **options)
    seconds = time.monotonic() - started
    print_whole(summary.data(results, seconds) if form == "json" else summary.text(results, seconds))
    sys.exit(summary.exit_code(results))


COMMANDS = (validate, compare, mutate)
