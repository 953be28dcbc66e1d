"""The command `pv report`: merge and render saved reports."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from pv.cli.options import add_options, baseline_options, format_option, output_option
from pv.cli.validate import print_and_exit
from pv.commands.terminal import parse_output
from pv.report import FORMATS, MAX_BYTES, formats, render


@click.command()
@add_options(
    click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)),
    format_option(tuple(FORMATS), "Format of the report on standard output."),
    output_option("Also write a report to a file."),
    baseline_options("never"),
    click.option("--partial", is_flag=True, help="Accept missing contracts or claims, and mutants not tried."),
    click.option(
        "--max-bytes",
        type=click.IntRange(1024),
        default=MAX_BYTES,
        show_default=True,
        help="Limit the size of Markdown.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Show all figures of every contract, passing ones included."),
)
def report(
    files: Sequence[Path],
    form: str,
    outputs: Sequence[str],
    baseline: str | None,
    fail_on: str,
    partial: bool,
    max_bytes: int,
    verbose: bool,
) -> None:
    """Merge saved reports into one, and render it.

    `pv validate --output json=FILE` writes FILE. If a claim has several results on a device, the worst measured one
    counts, or without a measured one, the worst recorded one. Without --partial, a contract of the project that is in
    none of the files is undecided. The exit code is the same as for a validation with these results; with `--fail-on
    weaker`, it is 1 if a contract asks for less than the base.
    `--format github` also appends the Markdown report to the job summary, if GITHUB_STEP_SUMMARY names its file.
    """
    from pv.commands import base_report

    targets = [parse_output(text, formats()) for text in outputs]
    merged = base_report.read_reports(files, partial=partial)
    base = base_report.read_base(baseline, merged.project.values()) if baseline is not None else None
    compared = base_report.compare_with_base(base, merged, fail_on) if base is not None else None
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if form == "github" and summary:
        # GitHub rejects the whole summary if it is too large, so limit the report to the remaining space.
        with Path(summary).open("a", encoding="utf-8") as file:
            remaining = max(min(max_bytes, MAX_BYTES - file.tell()), 1024)
            file.write(render(merged, "markdown", compared=compared, max_bytes=remaining))
    print_and_exit(merged, form, targets, verbose, compared, max_bytes)


COMMANDS = (report,)
