"""The commands that run code under contract: validate, check, compare, mutate."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from pv.cli.options import CHECK, COMPARE, MUTATE, VALIDATE
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
        _finish(cached, form, files, verbose, _compared(base, cached, fail_on, options["paths"]))
    from pv.commands.validate import Interrupted
    from pv.commands.validate import validate as run

    with live() as on_progress, uncollected():
        try:
            report = run(subjects=pairs(subjects), on_progress=on_progress, **options)
        except Interrupted as stop:
            report = stop.report
    cache.store(report, render(report, "json"))
    _finish(report, form, files, verbose, _compared(base, report, fail_on, options["paths"]))


def _base(baseline: str | None, paths: Sequence[Path]) -> Any:
    """Return the base to compare with, before anything is run; None without one."""
    if baseline is None:
        return None
    from pv.commands.baseline import read
    from pv.commands.request import project_of

    return read(baseline, paths, project_of(paths).root)


def _compared(base: Any, report: Any, fail_on: str, paths: Sequence[Path]) -> Any:
    if base is None:
        return None
    from pv.commands.baseline import compared
    from pv.commands.request import project_of

    return compared(base, report, fail_on, project_of(paths).root)


def _finish(report: Any, form: str, files: Sequence[tuple[str, Path]], verbose: bool, compared: Any = None) -> NoReturn:
    """Print a report, write its files, and exit."""
    options: dict[str, Any] = {"verbose": verbose, "folder": folder(), "compared": compared}
    print_whole(render(report, form, **screen(), **options))
    for kind, file in files:
        write(file, render(report, kind, **options))
    sys.exit(report.exit_code if compared is None else compared.exit_code(report))


class _CheckCommand(click.Command):
    """Keeps what follows `--` as the command to run, which click would take for the subject."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            position = args.index("--")
            ctx.obj = args[position + 1 :]
            args = args[:position]
        else:
            self._refuse_command_without_mark(args)
        return super().parse_args(ctx, args)

    def _refuse_command_without_mark(self, args: Sequence[str]) -> None:
        """Refuse `pv check python train.py` and `pv check train.py`: what is run comes after `--`."""
        options = {name: option for option in self.params for name in (*option.opts, *option.secondary_opts)}
        # The options of `pv check` come first. One that is no flag takes the next word, unless `=` joins its value.
        start = 0
        while start < len(args) and (option := options.get(args[start].partition("=")[0])) is not None:
            start += 1 if "=" in args[start] or getattr(option, "is_flag", False) else 2
        command = args[start:]
        if not command:
            return
        from pv.observe.launch import INTERPRETERS

        interpreter = INTERPRETERS.get(Path(command[0]).suffix)
        # Some words name a program and a subject: `accelerate`. A subject stands alone, but for options of `pv check`.
        has_arguments = len(command) > 1 and command[1] not in options
        has_script = any(Path(word).suffix in INTERPRETERS for word in command[1:])
        is_program = has_arguments and (has_script or shutil.which(command[0]) is not None)
        if interpreter or is_program or command[0] in LAUNCHERS:
            words = [*args[:start], "--", *([interpreter] if interpreter else []), *command]
            raise click.UsageError(f"the command comes after --: pv check {shlex.join(words)}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in three groups: for a command, for a SUBJECT, and for both."""
        groups: dict[str, list[tuple[str, str]]] = {
            "Options with a command": [],
            "Options with a SUBJECT": [],
            "Options": [],
        }
        for parameter in self.get_params(ctx):
            title = "Options"
            if parameter.name in ONLY_FOR_COMMANDS:
                title = "Options with a command"
            elif parameter.name in ONLY_FOR_SUBJECTS:
                title = "Options with a SUBJECT"
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                groups[title].append(row)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


LAUNCHERS = ("python", "python3", "torchrun", "bash", "sh", "uv")
"""Words that begin a command, also where no such program is installed."""


ONLY_FOR_SUBJECTS = ("suite", "jobs", "fail_fast", "seed", "replay", "spawn")
COMPARISONS = ("cut", "resume", "in_save", "extend", "against")
ONLY_FOR_COMMANDS = ("steps", "sample", "trace", "hints", "keep_compile", "no_probes", *COMPARISONS)


@click.command(cls=_CheckCommand, short_help="Judge a training script, or attack a training loop.")
@CHECK
@click.pass_context
def check(
    ctx: click.Context,
    /,
    subject: str | None,
    form: str,
    outputs: Sequence[str],
    verbose: bool,
    steps: int | None,
    sample: int | None,
    trace: Path | None,
    hints: bool,
    keep_compile: bool,
    no_probes: bool,
    cut: Sequence[int],
    resume: str,
    in_save: bool,
    extend: str,
    against: str,
    **options: Any,
) -> None:
    """Judge a training script by one run of it, unchanged; or attack a trainer with an adapter.

    \b
    pv check -- python train.py          run the command, observe it, and judge the run
    pv check adapter:Adapter             attack a loop with the claims of every loop

    What follows -- is the command: python, torchrun, accelerate launch, a shell script. Its output is passed through.

    \b
    pv check --cut 10 --resume '--resume {out}/last.pt' -- python train.py --out {out}

    runs it twice uncut, once killed after step 10 and resumed, and compares them. {out} is a fresh folder for every
    complete run; without it every complete run has its own copy of the working folder.

    SUBJECT is the name of a released trainer (transformers, trl, lightning, accelerate, ignite, fastai), or MODULE:NAME
    of an adapter or of a subclass of one of their classes. With --suite it is what that suite attacks: an optimizer, a
    schedule, a sampler, a loss, a metric, or a function that makes a language model.
    """
    files = [output(text, formats()) for text in outputs]
    command: list[str] | None = ctx.obj
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if command is not None or (subject is None and trace is not None):
        _refuse(given, ("subject", *ONLY_FOR_SUBJECTS), "with a command or --trace alone")
        if command is None:
            _refuse(given, COMPARISONS, "without a command")
        settings: dict[str, Any] = {
            "steps": steps or 0,
            "sample": sample or 1,
            "trace": trace,
            "keep_compile": keep_compile,
            "probes": not no_probes,
            "cut": cut,
            "resume": resume,
            "in_save": in_save,
            "extend": extend,
            "against": against,
            "only": options["only"],
        }
        _check_run(command, form, files, settings, verbose=verbose, hints=hints)
    if subject is None:
        raise click.UsageError("missing SUBJECT or a command: pv check adapter:Adapter, or pv check -- python train.py")
    _refuse(given, ONLY_FOR_COMMANDS, "with a SUBJECT")
    from pv.commands.conformance import check as run
    from pv.commands.validate import Interrupted

    with live() as on_progress:
        try:
            report = run(subject, on_progress=on_progress, **options)
        except Interrupted as stop:
            report = stop.report
    _finish(report, form, files, verbose)


def _refuse(given: set[str], names: Sequence[str], where: str) -> None:
    """Refuse options that would have no effect."""
    wrong = [name for name in names if name in given]
    if wrong:
        name = "SUBJECT" if wrong[0] == "subject" else f"--{wrong[0].replace('_', '-')}"
        raise click.UsageError(f"{name} has no effect {where}")


def _check_run(
    command: list[str] | None,
    form: str,
    files: Sequence[tuple[str, Path]],
    settings: dict[str, Any],
    *,
    verbose: bool,
    hints: bool,
) -> NoReturn:
    """Run a command observed, or read its traces; print the report, write its files, and exit.

    `settings` is how the command is run: the options of `check_run`.
    """
    from pv.commands.observed import check_run
    from pv.commands.observed_text import render as render_run

    if command == []:
        raise click.UsageError("no command after --: pv check -- python train.py")
    observed = check_run(command or (), **settings)
    options: dict[str, Any] = {"verbose": verbose, "folder": folder()}
    text = (
        render_run(observed, verbose=verbose, hints=hints)
        if form == "text"
        else render(observed.report, form, **screen(), **options)
    )
    print_whole(text)
    for kind, file in files:
        write(
            file,
            render_run(observed, verbose=True, hints=hints)
            if kind == "text"
            else render(observed.report, kind, **options),
        )
    sys.exit(observed.exit_code)


def _dry_run(form: str, outputs: Sequence[str], subjects: dict[str, str], options: dict[str, Any]) -> None:
    """Print what a validation would run, and exit."""
    from pv.commands.dry_run import dry_run as build
    from pv.report.dry_run import data, text

    if form not in ("text", "json") or outputs or options["record"] or options["replay"]:
        raise click.UsageError("--dry-run takes --format text or json, and neither --output, --record nor --replay")
    kept = ("paths", "only", "contracts", "devices", "mutants", "shard")
    result = build(subjects=subjects, **{name: options[name] for name in kept})
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


COMMANDS = (validate, check, compare, mutate)
