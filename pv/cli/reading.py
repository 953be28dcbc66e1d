"""The commands that read contracts and run none of them: lint, list, show, schema."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pv.cli.group import FAILED, REFUSED, UNDECIDED
from pv.cli.options import PATHS, SUBJECT, form, taking
from pv.commands.terminal import pairs, print_whole, uncollected
from pv.report.figures import count

if TYPE_CHECKING:
    from pv.contract.finding import Finding

EQUATION_CODES = ("PV180", "PV181", "PV182", "PV183")


@click.command()
@taking(
    PATHS,
    SUBJECT,
    form(("text", "json")),
    click.option("--codes", is_flag=True, help="List every code with its meaning and exit."),
)
def lint(paths: Sequence[Path], subjects: Sequence[str], form: str, codes: bool) -> None:
    """Check contracts and the code they name. Nothing is imported or run."""
    with uncollected():
        from pv.commands.request import check
        from pv.linting import CODES

        if codes:
            click.echo("\n".join(f"{code}  {meaning}" for code, meaning in CODES.items()))
            return
        contracts, findings = check(paths, subjects=pairs(subjects))
    _print_findings(findings, form, len(contracts))
    sys.exit(_lint_exit(len(contracts), findings))


def _print_findings(findings: "Sequence[Finding]", form: str, contracts: int) -> None:
    if form == "json":
        from pv.report.json_ import finding_data

        click.echo(json.dumps([finding_data(finding) for finding in findings], indent=1, ensure_ascii=False))
        return
    for finding in findings:
        click.echo(f"{finding.severity.value}: {finding}")
    click.echo(_lint_summary(contracts, findings))


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


@click.command("list")
@taking(PATHS, form(("text", "json")))
def list_(paths: Sequence[Path], form: str) -> None:
    """List contracts with their falsifiers, subjects and mutants."""
    from pv.commands.request import check
    from pv.report.listing import render

    contracts, findings = check(paths)
    refused = _print_refused(finding for finding in findings if finding.severity.value == "refusal")
    click.echo(render(contracts, form), nl=False)
    sys.exit(REFUSED if refused else 0 if contracts else UNDECIDED)


@click.command()
@taking(PATHS, form(("text", "latex")))
def show(paths: Sequence[Path], form: str) -> None:
    """Print the equations of contracts as parsed."""
    from pv.commands.request import check
    from pv.report.formulas import render

    contracts, findings = check(paths)
    refused = _print_refused(f for f in findings if f.code.startswith("PV0") or f.code in EQUATION_CODES)
    print_whole(render(contracts, form))
    sys.exit(REFUSED if refused else 0 if contracts else UNDECIDED)


def _print_refused(findings: "Iterable[Finding]") -> bool:
    """Print the findings to standard error; return whether there are any."""
    texts = [str(finding) for finding in findings]
    for text in texts:
        click.echo(text, err=True)
    return bool(texts)


@click.command()
@click.argument(
    "name",
    type=click.Choice(["contract", "existing", "report", "comparison", "evidence", "mutants"]),
    default="contract",
)
def schema(name: str) -> None:
    """Print a JSON Schema (default: contract)."""
    from pv.contract.load import schema as published

    click.echo(json.dumps(published(name), indent=2))


COMMANDS = (lint, list_, show, schema)
