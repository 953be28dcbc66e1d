"""The command line: parses, calls the library, renders, exits."""

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
from pv.errors import PvError
from pv.terminal import known_format, live, output, pairs, print_whole, write

if TYPE_CHECKING:
    from pv.model import Finding

BUG, REFUSED, FAILED, UNDECIDED, INTERRUPTED = 70, 3, 1, 2, 130
EQUATION_CODES = ("PV180", "PV181", "PV182", "PV183")
PATHS = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
SUBJECT = click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="CONTRACT=TARGET",
    help="Attack TARGET (module or module:attribute) in the place of CONTRACT's own subject.",
)


class _Command(click.Group):
    """Gives usage errors our exit code: 2 means undecided here."""

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
    """Attack the claims that contracts make about training code, and report what held and how hard it was tried.

    Exit codes, worst first: 70 a bug in pv, 3 refused (usage, malformed contract), 1 failed or lint errors,
    2 undecided or nothing measured, 0 passed; 130 interrupted.
    """


@main.command()
@PATHS
@click.option(
    "--only", multiple=True, metavar="ID", help="Only falsifiers and harnesses whose id matches (a glob pattern)."
)
@click.option("--contract", "contracts", multiple=True, metavar="ID", help="Only contracts whose id matches.")
@click.option(
    "--device", "devices", multiple=True, metavar="DEVICE", help="Exactly the cells of this device (cpu, cuda)."
)
@click.option("--require", multiple=True, metavar="DEVICE", help="Recorded cells of this device count too (cuda).")
@SUBJECT
@click.option("--jobs", type=click.IntRange(1), help="Workers at once (default: one per core).")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option("--examples", type=click.IntRange(1), help="Examples per falsifier (default: as its contract says).")
@click.option("--seed", type=int, default=0, show_default=True, help="Other examples than those of seed 0.")
@click.option(
    "--replay", default="", metavar="EXAMPLE", help="One example: VERSION:BLOB as printed, or JSON arguments."
)
@click.option("--record", is_flag=True, help="Keep proofs, or what another device showed, to be committed.")
@click.option(
    "--format", "form", default="text", show_default=True, help="text, json, markdown or junit, on standard output."
)
@click.option("--output", "outputs", multiple=True, metavar="FORMAT=FILE", help="Also write a report to a file.")
@click.option("--spawn", is_flag=True, help="Start every worker as a new interpreter (slow; for debugging).")
def validate(form: str, outputs: Sequence[str], subjects: Sequence[str], **options: Any) -> None:
    """Attack contracts: files, folders, or by default all of the project's.

    Every falsifier runs in a worker of its own; one that finds nothing must then detect the mutants it claims to kill.
    """
    from pv.report import FORMATS, render
    from pv.runner import Interrupted
    from pv.runner import validate as run

    known_format(form, FORMATS)
    files = [output(text, FORMATS) for text in outputs]
    with live() as on_progress:
        try:
            report = run(subjects=pairs(subjects), on_progress=on_progress, **options)
        except Interrupted as stop:
            report = stop.report
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size().columns
    print_whole(render(report, form, color=color, width=width))
    for kind, file in files:
        write(file, render(report, kind))
    sys.exit(report.exit_code)


@main.command()
@click.argument("contract")
@PATHS
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="SUBJECT",
    help="A name that the contract declares, or any module or module:attribute (default: all declared, and its own).",
)
@click.option("--only", multiple=True, metavar="ID", help="Only falsifiers whose id matches (a glob pattern).")
@click.option("--jobs", type=click.IntRange(1), help="Workers at once (default: one per core).")
@click.option("--examples", type=click.IntRange(1), help="Examples per falsifier (default: as its contract says).")
@click.option("--seed", type=int, default=0, show_default=True, help="Other examples than those of seed 0.")
@click.option("--strict", is_flag=True, help="Exit 1 if a claim of any subject is refuted, not only of the own one.")
@click.option("--format", "form", default="text", show_default=True, help="text, json or markdown, on standard output.")
@click.option("--output", "outputs", multiple=True, metavar="FORMAT=FILE", help="Also write the matrix to a file.")
@click.option("--spawn", is_flag=True, help="Start every worker as a new interpreter (slow; for debugging).")
def compare(contract: str, form: str, outputs: Sequence[str], **options: Any) -> None:
    """Hold several subjects against the claims of one CONTRACT (its id), and print the matrix.

    A refuted claim of a peer is what was asked for: exit 0, unless --strict. The contract's own subject must hold,
    and no cell may be in error.
    """
    from pv.comparison import compare as run
    from pv.report.matrix import FORMATS, render

    known_format(form, FORMATS)
    files = [output(text, FORMATS) for text in outputs]
    with live() as on_progress:
        comparison = run(contract, on_progress=on_progress, **options)
    print_whole(render(comparison, form, width=shutil.get_terminal_size().columns))
    for kind, file in files:
        write(file, render(comparison, kind))
    sys.exit(comparison.exit_code)


@main.command()
@click.argument("names", nargs=-1, metavar="[CONTRACT|ID]...")
@click.option(
    "--path", "paths", multiple=True, type=click.Path(path_type=Path), help="Contracts here, not the project's."
)
@click.option("--sample", type=click.IntRange(1), help="Draw so many mutants instead of trying all.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another sample than that of seed 0.")
@click.option("--wide", "widely", is_flag=True, help="Also mutate what the subjects import.")
@click.option(
    "--module", "modules", multiple=True, metavar="MODULE", help="Mutate only modules that match (a pattern)."
)
@click.option("--jobs", type=click.IntRange(1), help="Workers at once (default: one per core).")
@click.option("--record", is_flag=True, help="Keep each contract's score, to be committed.")
@click.option("--fresh", is_flag=True, help="Try again what was noticed on an earlier run and rests on the same code.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--spawn", is_flag=True, help="Start every worker as a new interpreter (slow; for debugging).")
def mutate(form: str, **options: Any) -> None:
    """Plant every fault that rules can make in what the falsifiers reach, and show which of them nobody notices.

    A contract is judged by all its falsifiers; where falsifiers are named, by these alone.
    """
    import time

    from pv.mutating import mutate as run
    from pv.mutation import report

    started = time.monotonic()
    with live() as on_progress:
        results = run(on_progress=on_progress, **options)
    seconds = time.monotonic() - started
    print_whole(report.data(results, seconds) if form == "json" else report.text(results, seconds))
    sys.exit(report.exit_code(results))


@main.command()
@PATHS
@SUBJECT
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--codes", is_flag=True, help="List what every code means, and exit.")
def lint(paths: Sequence[Path], subjects: Sequence[str], form: str, codes: bool) -> None:
    """Check contracts and the code they name, without importing or running any of it."""
    from pv.linting import CODES
    from pv.report.json_ import finding_data
    from pv.request import check

    if codes:
        click.echo("\n".join(f"{code}  {meaning}" for code, meaning in CODES.items()))
        return
    contracts, findings = check(paths, subjects=pairs(subjects))
    if form == "json":
        click.echo(json.dumps([finding_data(finding) for finding in findings], indent=1, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{finding.severity.value}: {finding}")
        click.echo(_lint_summary(len(contracts), findings))
    sys.exit(_lint_exit(len(contracts), findings))


@main.command("list")
@PATHS
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_(paths: Sequence[Path], form: str) -> None:
    """Show contracts, their falsifiers, and what these attack and kill."""
    from pv.report.listing import render
    from pv.request import check

    contracts, findings = check(paths)
    refused = [finding for finding in findings if finding.severity.value == "refusal"]
    for finding in refused:
        click.echo(str(finding), err=True)
    click.echo(render(contracts, form), nl=False)
    sys.exit(REFUSED if refused else 0 if contracts else UNDECIDED)


@main.command()
@PATHS
@click.option("--format", "form", type=click.Choice(["text", "latex"]), default="text", show_default=True)
def show(paths: Sequence[Path], form: str) -> None:
    """Show the equations that are held against code, as they were parsed."""
    from pv.report.formulas import render
    from pv.request import check

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
    """Print a published JSON Schema."""
    from pv.loading import schema as published

    click.echo(json.dumps(published(name), indent=2))


def _lint_summary(contracts: int, findings: "Sequence[Finding]") -> str:
    kinds = [finding.severity.value for finding in findings]
    counts = ", ".join(f"{kinds.count(kind)} {kind}s" for kind in ("refusal", "error", "notice"))
    return f"{contracts} contracts: {counts}"


def _lint_exit(contracts: int, findings: "Sequence[Finding]") -> int:
    kinds = {finding.severity.value for finding in findings}
    if "refusal" in kinds:
        return REFUSED
    if "error" in kinds:
        return FAILED
    return 0 if contracts else UNDECIDED
