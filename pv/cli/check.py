"""The command check: judge a training script by one run, or attack a training loop."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from pv.cli.options import CHECK
from pv.cli.validate import print_and_exit
from pv.commands.terminal import parse_output, print_text, progress_line, repository_folder, write_report
from pv.report import formats, render

if TYPE_CHECKING:
    from pv.commands.observed import ObservedRun


class _CheckCommand(click.Command):
    """Stores the words after `--`, the command to run, in `ctx.obj`. Click would parse these words as the subject."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            position = args.index("--")
            ctx.obj = args[position + 1 :]
            args = args[:position]
        elif not set(args) & set(ctx.help_option_names):  # the check imports a module, and `--help` must stay fast
            self._refuse_command_without_dashes(args)
        return super().parse_args(ctx, args)

    def _refuse_command_without_dashes(self, args: Sequence[str]) -> None:
        """Raise a usage error for `pv check python train.py` and `pv check train.py`: `--` must precede a command."""
        options = {name: option for option in self.params for name in (*option.opts, *option.secondary_opts)}
        # Skip the options of `pv check`. The value of an option is the next word, or follows `=` in the same word.
        start = 0
        while start < len(args) and (option := options.get(args[start].partition("=")[0])) is not None:
            start += 1 if "=" in args[start] or getattr(option, "is_flag", False) else 2
        command = args[start:]
        if not command:
            return
        from pv.observe.launch import INTERPRETERS

        interpreter = INTERPRETERS.get(Path(command[0]).suffix)
        # `accelerate` is a program and a subject. It is the subject if nothing, or an option of `pv check`, follows.
        has_arguments = len(command) > 1 and command[1].partition("=")[0] not in options
        has_script = any(Path(word).suffix in INTERPRETERS for word in command[1:])
        is_program = has_arguments and (has_script or shutil.which(command[0]) is not None)
        if interpreter or is_program or command[0] in LAUNCHERS:
            words = [*args[:start], "--", *([interpreter] if interpreter else []), *command]
            import shlex  # here, because `pv --help` imports this module and must stay fast

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
"""If one of these words comes first, a command follows, even if this program is not installed."""


ONLY_FOR_SUBJECTS = ("suite", "jobs", "fail_fast", "seed", "replay", "spawn")
COMPARISONS = ("cut", "resume", "in_save", "extend", "against")
"""The options that run the command several times and compare the runs."""
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
    suite: str,
    only: Sequence[str],
    jobs: int | None,
    fail_fast: bool,
    seed: int,
    replay: str,
    spawn: bool,
) -> None:
    """Judge a training script, unchanged, by one run; or attack a trainer through an adapter.

    \b
    pv check -- python train.py          run the command, observe it, and judge the run
    pv check adapter:Adapter             attack a loop with the claims of every loop

    What follows -- is the command: python, torchrun, accelerate launch, a shell script. Its output is passed through.

    \b
    pv check --cut 10 --resume '--resume {out}/last.pt' -- python train.py --out {out}

    runs the command twice to its end and once killed after step 10 and resumed, and compares the runs. {out} is a fresh
    folder for every complete run; without {out}, every complete run has its own copy of the working folder.

    SUBJECT is the name of a released trainer (transformers, trl, lightning, accelerate, ignite, fastai), or MODULE:NAME
    of an adapter or of a subclass of a trainer's class. With --suite, SUBJECT is the object that the suite attacks: an
    optimizer, a schedule, a sampler, a loss, a metric, or a function that creates a language model.
    """
    files = [parse_output(text, formats()) for text in outputs]
    command: list[str] | None = ctx.obj
    typed = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if command is not None or (subject is None and trace is not None):
        _refuse(typed, ("subject", *ONLY_FOR_SUBJECTS), "with a command or --trace alone")
        if command is None:
            _refuse(typed, COMPARISONS, "without a command")
        from pv.commands.observed import check_run

        if command == []:
            raise click.UsageError("no command after --: pv check -- python train.py")
        observed = check_run(
            command or (),
            steps=steps or 0,
            sample=sample or 1,
            trace=trace,
            keep_compile=keep_compile,
            probes=not no_probes,
            cut=cut,
            resume=resume,
            in_save=in_save,
            extend=extend,
            against=against,
            only=only,
        )
        _print_run(observed, form, files, verbose=verbose, hints=hints)
    if subject is None:
        raise click.UsageError("missing SUBJECT or a command: pv check adapter:Adapter, or pv check -- python train.py")
    _refuse(typed, ONLY_FOR_COMMANDS, "with a SUBJECT")
    from pv.commands.conformance import check as run
    from pv.commands.validate import Interrupted

    with progress_line() as on_progress:
        try:
            report = run(
                subject,
                suite=suite,
                only=only,
                jobs=jobs,
                fail_fast=fail_fast,
                seed=seed,
                replay=replay,
                spawn=spawn,
                on_progress=on_progress,
            )
        except Interrupted as stop:
            report = stop.report
    print_and_exit(report, form, files, verbose)


def _refuse(typed: set[str], names: Sequence[str], condition: str) -> None:
    """Raise a usage error for the first of `names` that the user has typed; under `condition` it has no effect."""
    without_effect = [name for name in names if name in typed]
    if without_effect:
        name = "SUBJECT" if without_effect[0] == "subject" else f"--{without_effect[0].replace('_', '-')}"
        raise click.UsageError(f"{name} has no effect {condition}")


def _print_run(
    observed: "ObservedRun", form: str, files: Sequence[tuple[str, Path]], *, verbose: bool, hints: bool
) -> NoReturn:
    """Print the report of an observed run, write its files, and exit.

    Args:
        observed: The run.
        form: The format on standard output.
        files: Pairs of a format and the file to write in this format.
        verbose: Show all details. A text file always shows all details.
        hints: Show hints in the text format.
    """
    from pv.commands.observed import render as render_run

    # Only the text format shows the details of a run; other formats render its report, as for a validation.
    texts = [file for kind, file in files if kind == "text"]
    for file in texts:
        write_report(file, render_run(observed, verbose=True, hints=hints))
    remaining = [(kind, file) for kind, file in files if kind != "text"]
    if form != "text":
        print_and_exit(observed.report, form, remaining, verbose)
    print_text(render_run(observed, verbose=verbose, hints=hints))
    for kind, file in remaining:
        write_report(file, render(observed.report, kind, verbose=verbose, folder=repository_folder()))
    sys.exit(observed.exit_code)


COMMANDS = (check,)
