"""The command line: parses options, calls the library, renders its results, exits."""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pv import __version__
from pv.commands.terminal import live, output, pairs, print_whole, uncollected, write
from pv.errors import PvError
from pv.report import COMPARISON_FORMATS, FORMATS, render
from pv.report.figures import count

if TYPE_CHECKING:
    from pv.contract.finding import Finding

BUG, REFUSED, FAILED, UNDECIDED, INTERRUPTED = 70, 3, 1, 2, 130
EQUATION_CODES = ("PV180", "PV181", "PV182", "PV183")
PATHS = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
SUBJECT = click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="CONTRACT=TARGET",
    help="Use TARGET (module or module:attribute) instead of CONTRACT's own subject.",
)


class _Command(click.Group):
    """Exits with 3 on usage errors, since 2 means undecided."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            sys.exit(REFUSED)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except PvError as error:
            click.echo(f"pv: {error}", err=True)
            sys.exit(REFUSED)
        except Exception:
            traceback.print_exc()
            click.echo("pv: this is a bug in pv, not in your contract; please report the lines above", err=True)
            sys.exit(BUG)


@click.group(cls=_Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="pv")
def main() -> None:
    """Test the claims of contracts about training code, and report which held and how hard each was tried.

    Exit codes, worst first: 70 a bug in pv, 3 refused (usage, malformed contract), 1 failed or lint errors,
    2 undecided or nothing measured, 0 passed; 130 interrupted.
    """


@main.command()
@PATHS
@click.option(
    "--only", multiple=True, metavar="ID", help="Run only falsifiers and harnesses whose id matches (a glob pattern)."
)
@click.option(
    "--contract", "contracts", multiple=True, metavar="ID", help="Run only contracts whose id matches (a glob pattern)."
)
@click.option(
    "--device", "devices", multiple=True, metavar="DEVICE", help="Run only on this device (cpu, cuda; repeatable)."
)
@click.option(
    "--require", multiple=True, metavar="DEVICE", help="Also require recorded evidence for this device (cuda)."
)
@SUBJECT
@click.option("--jobs", type=click.IntRange(1), help="Number of parallel workers (default: one per core).")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option(
    "--examples", type=click.IntRange(1), help="Number of examples per falsifier (default: from the contract)."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the examples.")
@click.option(
    "--replay", default="", metavar="EXAMPLE", help="Replay one example: VERSION:BLOB as printed, or JSON arguments."
)
@click.option("--record", is_flag=True, help="Write proofs and device results to evidence/.")
@click.option("-v", "--verbose", is_flag=True, help="Show all figures of every contract, passing ones included.")
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(FORMATS)),
    default="text",
    show_default=True,
    help="Format of the report on standard output.",
)
@click.option("--output", "outputs", multiple=True, metavar="FORMAT=FILE", help="Also write a report to a file.")
@click.option("--spawn", is_flag=True, help="Start every worker in a new interpreter (slow; for debugging).")
@click.option("--no-mutants", "mutants", is_flag=True, flag_value=False, default=True, help="Try no mutants.")
@click.option("--dry-run", is_flag=True, help="Build every task of the devices, run none, and list what would run.")
def validate(
    form: str, outputs: Sequence[str], subjects: Sequence[str], verbose: bool, dry_run: bool, **options: Any
) -> None:
    """Test the claims of contracts.

    PATHS are contract files or folders (default: the contracts of the project). Every falsifier runs in its own
    worker process. A falsifier that holds must then kill its mutants.
    """
    from pv.commands.validate import Interrupted
    from pv.commands.validate import validate as run

    if dry_run:
        _dry_run(form, outputs, pairs(subjects), options)
    files = [output(text, tuple(FORMATS)) for text in outputs]
    with live() as on_progress:
        try:
            report = run(subjects=pairs(subjects), on_progress=on_progress, **options)
        except Interrupted as stop:
            report = stop.report
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size().columns
    print_whole(render(report, form, color=color, width=width, verbose=verbose))
    for kind, file in files:
        write(file, render(report, kind, verbose=verbose))
    sys.exit(report.exit_code)


def _dry_run(form: str, outputs: Sequence[str], subjects: dict[str, str], options: dict[str, Any]) -> None:
    """Print what a validation would run, and exit."""
    from pv.commands.dry_run import dry_run as build
    from pv.report.dry_run import data, text

    if form not in ("text", "json") or outputs or options["record"] or options["replay"]:
        raise click.UsageError("--dry-run takes --format text or json, and neither --output, --record nor --replay")
    kept = ("paths", "only", "contracts", "devices", "mutants")
    result = build(subjects=subjects, **{name: options[name] for name in kept})
    print_whole(data(result) if form == "json" else text(result))
    sys.exit(result.exit_code)


@main.command()
@click.argument("contract")
@PATHS
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="SUBJECT",
    help="Compare this subject: a declared name, a module or module:attribute (default: all declared, and its own).",
)
@click.option("--only", multiple=True, metavar="ID", help="Run only falsifiers whose id matches (a glob pattern).")
@click.option("--jobs", type=click.IntRange(1), help="Number of parallel workers (default: one per core).")
@click.option(
    "--examples", type=click.IntRange(1), help="Number of examples per falsifier (default: from the contract)."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the examples.")
@click.option("--strict", is_flag=True, help="Exit with 1 if any subject is falsified, not only the contract's own.")
@click.option(
    "--format",
    "form",
    type=click.Choice(COMPARISON_FORMATS),
    default="text",
    show_default=True,
    help="Format of the comparison on standard output.",
)
@click.option("--output", "outputs", multiple=True, metavar="FORMAT=FILE", help="Also write the comparison to a file.")
@click.option("--spawn", is_flag=True, help="Start every worker in a new interpreter (slow; for debugging).")
def compare(contract: str, form: str, outputs: Sequence[str], **options: Any) -> None:
    """Test several subjects against one contract.

    CONTRACT is an id, PATHS are contract files or folders (default: the contracts of the project). Exit code 1 if the
    contract's own subject fails or a result is an error; with --strict, also if another subject is falsified.
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


@main.command()
@click.argument("names", nargs=-1, metavar="[CONTRACT|FALSIFIER]...")
@click.option(
    "--path",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Read contracts from here instead of the project's.",
)
@click.option("--sample", type=click.IntRange(1), help="Try a random sample of this many mutants.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample.")
@click.option("--wide", "widely", is_flag=True, help="Also mutate modules that the subjects import.")
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Mutate only modules whose name matches (a glob pattern).",
)
@click.option("--jobs", type=click.IntRange(1), help="Number of parallel workers (default: one per core).")
@click.option("--record", is_flag=True, help="Write the mutation score of each contract to evidence/.")
@click.option("--fresh", is_flag=True, help="Ignore cached results.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format on standard output.",
)
@click.option("--spawn", is_flag=True, help="Start every worker in a new interpreter (slow; for debugging).")
def mutate(form: str, **options: Any) -> None:
    """Generate mutants of the covered code and list the survivors.

    Name contracts to use all their falsifiers, or falsifiers to use only those (default: all contracts).
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


@main.command()
@PATHS
@SUBJECT
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format on standard output.",
)
@click.option("--codes", is_flag=True, help="List every code with its meaning and exit.")
def lint(paths: Sequence[Path], subjects: Sequence[str], form: str, codes: bool) -> None:
    """Check contracts and the code they name. Nothing is imported or run."""
    with uncollected():
        from pv.commands.request import check
        from pv.linting import CODES

        if codes:
            click.echo("\n".join(f"{code}  {meaning}" for code, meaning in CODES.items()))
            return
        contracts, findings = check(paths, subjects=pairs(subjects))
    if form == "json":
        from pv.report.json_ import finding_data

        click.echo(json.dumps([finding_data(finding) for finding in findings], indent=1, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{finding.severity.value}: {finding}")
        click.echo(_lint_summary(len(contracts), findings))
    sys.exit(_lint_exit(len(contracts), findings))


@main.command("list")
@PATHS
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format on standard output.",
)
def list_(paths: Sequence[Path], form: str) -> None:
    """List contracts with their falsifiers, subjects and mutants."""
    from pv.commands.request import check
    from pv.report.listing import render

    contracts, findings = check(paths)
    refused = [finding for finding in findings if finding.severity.value == "refusal"]
    for finding in refused:
        click.echo(str(finding), err=True)
    click.echo(render(contracts, form), nl=False)
    sys.exit(REFUSED if refused else 0 if contracts else UNDECIDED)


@main.command()
@PATHS
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "latex"]),
    default="text",
    show_default=True,
    help="Format on standard output.",
)
def show(paths: Sequence[Path], form: str) -> None:
    """Print the equations of contracts as parsed."""
    from pv.commands.request import check
    from pv.report.formulas import render

    contracts, findings = check(paths)
    refused = [finding for finding in findings if finding.code.startswith("PV0") or finding.code in EQUATION_CODES]
    for finding in refused:
        click.echo(str(finding), err=True)
    print_whole(render(contracts, form))
    sys.exit(REFUSED if refused else 0 if contracts else UNDECIDED)


@main.command()
@click.argument(
    "name",
    type=click.Choice(["contract", "existing", "report", "comparison", "evidence", "mutants"]),
    default="contract",
)
def schema(name: str) -> None:
    """Print a JSON Schema (default: contract)."""
    from pv.contract.load import schema as published

    click.echo(json.dumps(published(name), indent=2))


def _lint_summary(contracts: int, findings: "Sequence[Finding]") -> str:
    kinds = [finding.severity.value for finding in findings]
    nouns = {"refusal": "invalid file", "error": "error", "notice": "notice"}
    counts = ", ".join(count(kinds.count(kind), noun) for kind, noun in nouns.items())
    return f"{count(contracts, 'contract')}: {counts}"


def _lint_exit(contracts: int, findings: "Sequence[Finding]") -> int:
    kinds = {finding.severity.value for finding in findings}
    if "refusal" in kinds:
        return REFUSED
    if "error" in kinds:
        return FAILED
    return 0 if contracts else UNDECIDED
