"""The commands for authors: new, explain, doctor, why."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pv.cli.options import NAME, SPAWN
from pv.commands.terminal import print_text, without_garbage_collection, wrap_width
from pv.errors import ExitCode


@click.command(short_help="Write a first contract, or an adapter.")
@click.argument("name", default="")
@click.option(
    "--subject", default="", metavar="MODULE:NAME", help="Write a contract about this function, method or class."
)
@click.option(
    "--trainer", default="", metavar="MODULE:NAME", help="Write an adapter of this training loop for `pv check`."
)
@click.option(
    "--trace",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --trainer: list the claims that the run traced in DIR has passed (pv check --trace DIR -- COMMAND).",
)
def new(name: str, subject: str, trainer: str, trace: Path | None) -> None:
    """Write a first contract, with a falsifier and a mutant, or the adapter of a training loop.

    Without --subject, write a small example that passes. NAME is the id of the contract (default: the name of the
    function, or `example`). Existing files are never changed.
    """
    from pv.commands.new import new as write
    from pv.commands.new_adapter import new_adapter

    if trainer and (name or subject):
        raise click.UsageError("--trainer takes neither a name nor --subject")
    if trace is not None and not trainer:
        raise click.UsageError("--trace has no effect without --trainer")
    written = new_adapter(trainer, trace=trace) if trainer else write(name, subject=subject)
    lines = [f"wrote {path}" for path in written.files] + list(written.advice)
    print_text("".join(f"{line}\n" for line in [*lines, f"next: {written.commands[0]}"]))


@click.command(short_help="Explain a lint code, a claim or a contract.")
@NAME
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Show the last results from a JSON report of `pv validate`.",
)
def explain(name: str, report: Path | None) -> None:
    """Explain a lint code, or show how a claim, mutant or contract was tested.

    A code is shown with a wrong and a right example, a claim with its test, its mutants and its recorded results. An ID
    may be a glob pattern, such as 'TL-RESUME-*'.
    """
    with without_garbage_collection():
        from pv.commands.explain import explain as collect
        from pv.contract.codes import explanation
        from pv.linting import CODES
        from pv.report import explanation as texts

        if (code := name.upper()) in CODES:
            print_text(texts.code(code, CODES[code], explanation(code)))
            return
        subjects = collect(name, report=report)
    print_text("\n".join(texts.text(subject, wrap_width()) for subject in subjects))


@click.command()
@SPAWN
def doctor(spawn: bool) -> None:
    """Check the installation, this machine and the project.

    Exit code 0 if contracts can be validated here, 1 if there is a problem.
    """
    from pv.commands.doctor import Level
    from pv.commands.doctor import doctor as examine
    from pv.contract.wording import count
    from pv.report.wrapping import wrap_line

    checks = examine(spawn=spawn)
    levels = [check.level for check in checks]
    lines = [line for check in checks for line in check.lines]
    lines += ["", f"{count(levels.count(Level.PROBLEM), 'problem')}, {count(levels.count(Level.NOTE), 'note')}"]
    print_text("".join(f"{wrap_line(line, wrap_width(), 12)}\n" for line in lines))
    sys.exit(ExitCode.worst(failed=Level.PROBLEM in levels))


@click.command(short_help="Say why results of claims are reused or not.")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
def why(names: Sequence[str]) -> None:
    """Say why the results of claims are reused, or what has changed since they were measured.

    ID is a glob pattern over the ids of claims.
    """
    from pv.commands.explain import reuse_statuses

    for status in reuse_statuses(list(names)):
        since = f" since its result of {status.when}" if status.when else ""
        lines = [f"{status.claim}: will run", *([f"  changed{since}:"] if since else [])]
        if status.reused:
            lines = [f"{status.claim}: reused, nothing changed{since}"]
        click.echo("\n".join([*lines, *(f"  - {reason}" for reason in status.reasons)]))


COMMANDS = (new, explain, why, doctor)
