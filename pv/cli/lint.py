"""The commands that read contracts and run nothing: lint, list, show, schema."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pv.cli.options import PATHS, SUBJECT, VERBOSE, add_options, format_option
from pv.commands.terminal import parse_subjects, print_text, without_garbage_collection, wrap_width
from pv.errors import ExitCode

if TYPE_CHECKING:
    from pv.contract.finding import Finding
    from pv.contract.model import Contract

EQUATION_CODES = ("PV180", "PV181", "PV182", "PV183")
"""Lint codes of invalid equations, which `pv show` cannot print."""


@click.command()
@add_options(
    PATHS,
    SUBJECT,
    format_option(("text", "json")),
    VERBOSE,
    click.option("--codes", is_flag=True, help="List every code with its meaning and exit."),
)
def lint(paths: Sequence[Path], subjects: Sequence[str], form: str, verbose: bool, codes: bool) -> None:
    """Check contracts and the code they name. Nothing is imported or run."""
    with without_garbage_collection():
        from pv.commands.plan import check
        from pv.linting import CODES

        if codes:
            click.echo("\n".join(f"{code}  {meaning}" for code, meaning in CODES.items()))
            return
        contracts, findings = check(paths, subjects=parse_subjects(subjects))
    kinds = [finding.severity.value for finding in findings]
    if form == "json":
        import json

        from pv.results.saved.report import to_json

        print_text(json.dumps([to_json(finding) for finding in findings], indent=1, ensure_ascii=False) + "\n")
    else:
        from pv.contract.wording import count
        from pv.report.wrapping import excerpt, wrap_line

        for finding in findings:
            click.echo(wrap_line(f"{finding.severity.value}: {finding}", wrap_width()))
            for line in excerpt(finding) if verbose else ():
                click.echo(line)
        invalid = {finding.location.path for finding in findings if finding.severity.value == "refusal"}
        counts = [
            count(len(invalid), "invalid file"),
            *(count(kinds.count(kind), kind) for kind in ("error", "notice")),
        ]
        click.echo(f"{count(len(contracts), 'contract')}: {', '.join(counts)}")
    sys.exit(ExitCode.worst(refused="refusal" in kinds, failed="error" in kinds, undecided=not contracts))


@click.command("list")
@add_options(PATHS, format_option(("text", "json")), VERBOSE)
def list_(paths: Sequence[Path], form: str, verbose: bool) -> None:
    """List contracts with their falsifiers, subjects and mutants."""
    from pv.report.listing import render

    contracts, findings = _load_named(paths, run_lint=False)
    refused = _print_errors(finding for finding in findings if finding.severity.value == "refusal")
    print_text(render(contracts, form, width=wrap_width(), verbose=verbose))
    sys.exit(ExitCode.worst(refused=refused, undecided=not contracts))


@click.command(short_help="Print the equations of contracts.")
@add_options(PATHS, format_option(("text", "latex")))
def show(paths: Sequence[Path], form: str) -> None:
    """Print the equations of contracts, or of single claims, as parsed."""
    from pv.report.listing import render_formulas

    contracts, findings = _load_named(paths)
    refused = _print_errors(f for f in findings if f.code.startswith("PV0") or f.code in EQUATION_CODES)
    text = render_formulas([_select_equations(contract, paths) for contract in contracts], form)
    print_text(text)
    if not text and contracts and not refused:
        claim_id = next((claim.id for contract in contracts for claim in contract.claims), "ID")
        click.echo(f"no executable equation; `pv explain {claim_id}` shows a claim, `pv list -v` all claims", err=True)
    sys.exit(ExitCode.worst(refused=refused, undecided=not contracts))


def _load_named(names: Sequence[Path], *, run_lint: bool = True) -> "tuple[list[Contract], tuple[Finding, ...]]":
    """Load contracts, reduced to their named claims.

    Returns:
        The contracts; and the findings of the loader, with `run_lint` also the findings of lint.
    """
    from pv.commands.naming import resolve_names
    from pv.commands.plan import check, project_of, read

    project = project_of(names)
    arguments = resolve_names(names, project)
    if run_lint:
        contracts, findings = check(arguments.paths, project=project)
    else:
        loaded = read(arguments.paths, project)
        contracts, findings = loaded.contracts, loaded.findings
    return [arguments.select(contract) for contract in contracts], findings


def _select_equations(contract: "Contract", names: Sequence[Path]) -> "Contract":
    """Return the contract, reduced to the equations of its claims if single claims are named."""
    if not names or contract == contract.known.get(contract.id):  # equal: the names select all of its claims
        return contract
    wanted = {claim.equation for claim in contract.claims}
    from dataclasses import replace

    return replace(contract, equations=tuple(equation for equation in contract.equations if equation.name in wanted))


def _print_errors(findings: "Iterable[Finding]") -> bool:
    """Print the findings to standard error; return whether there are any."""
    from pv.report.wrapping import plain

    texts = [plain(str(finding)) for finding in findings]
    for text in texts:
        click.echo(text, err=True)
    return bool(texts)


@click.command(short_help="Print a JSON Schema, or a reference.")
@click.argument(
    "name",
    type=click.Choice(["contract", "existing", "report", "comparison", "evidence", "mutants"]),
    default="contract",
)
@format_option(("json", "markdown"))
def schema(name: str, form: str) -> None:
    """Print a JSON Schema (default: contract), or the reference of contracts as Markdown."""
    from pv.contract.load import schema as published
    from pv.contract.reference import markdown

    if form == "json":
        import json

        print_text(json.dumps(published(name), indent=2, ensure_ascii=False) + "\n")
    elif name == "contract":
        print_text(markdown(published(name)))
    else:
        raise click.UsageError("only the schema 'contract' has a reference in Markdown")


COMMANDS = (lint, list_, show, schema)
