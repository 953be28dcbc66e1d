"""The command `distill`: gather the settings, run, and print the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reference_trainer import interrupts
from reference_trainer.cli.group import FAILED, guarded, main, rank_of_process
from reference_trainer.config.kinds import kind_of
from reference_trainer.config.settings import DOTTED, FIELDS, GROUPS, Settings
from reference_trainer.config.sources import gather
from reference_trainer.errors import SettingError

if TYPE_CHECKING:
    from reference_trainer.pipeline.report import DistillResult

ALL = frozenset({*DOTTED, *DOTTED.values()})
"""The flat and the dotted names of all settings."""


class SettingOption(click.Option):
    """An option of a setting: the flat one, such as `--temperature`, or the dotted one, `--objective.temperature`.

    The help lists a dotted option only beside the flat one, and only if it is not `--GROUP.NAME`.

    Args:
        name: The name of the option: the flat or the dotted name of the setting.
        setting: The flat name of the setting.
    """

    def __init__(self, name: str, setting: str) -> None:
        field, kind = FIELDS[setting], kind_of(FIELDS[setting])
        kwargs: dict[str, Any] = {"metavar": kind.metavar} if kind.metavar else {"flag_value": "true"}
        default = "" if field.default in (None, False) else f" [default: {field.default}]"
        flag = f"--{name.replace('_', '-')}"
        hidden = name != setting
        # click accepts no dot in the name of a parameter, so "value" stands in for the name until the next line.
        super().__init__([flag, "value"], default=None, help=f"{field.description}{default}", hidden=hidden, **kwargs)
        self.name, self.group = name, DOTTED[setting].partition(".")[0]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the flag and its help text; list the dotted flag too unless it is just `--GROUP.NAME`."""
        record, dotted = super().get_help_record(ctx), DOTTED.get(self.name or "", "")
        if record is None or dotted == f"{self.group}.{self.name}":
            return record
        flag = self.opts[0]
        return record[0].replace(flag, f"{flag}, --{dotted.replace('_', '-')}"), record[1]


class SettingsCommand(click.Command):
    """A command whose help lists the settings in a section for each group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in (*GROUPS, "")}
        for param in self.get_params(ctx):
            group = param.group if isinstance(param, SettingOption) else ""
            rows[group] += filter(None, [param.get_help_record(ctx)])
        for name, records in rows.items():
            title = f"{(GROUPS[name].__doc__ or '').rstrip('.')} (--{name}.NAME)" if name else "Other options"
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def setting_options(command: Callable[..., int], names: Collection[str] = ALL) -> Callable[..., int]:
    """Add the options of the settings in `names` to a command; the default is all settings.

    Options keep their values as text. `gather` parses the text, and its errors name the option.
    """
    # click reverses `__click_params__`, because decorators run from the last to the first.
    params: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
    for name, dotted in reversed([pair for pair in DOTTED.items() if pair[0] in names]):
        params += [SettingOption(dotted, name), SettingOption(name, name)]
    return command


@main.command(cls=SettingsCommand)
@setting_options
@click.option(
    "--config", metavar="PATH", help="Read settings from this TOML or YAML file, or from a packaged one: see `recipes`."
)
@click.option("--dry-run", is_flag=True, help="Print memory by part, steps, tokens and time, and train nothing.")
@click.option(
    "--ranks", type=click.IntRange(1, 10**5), metavar="N", help="With --dry-run: number of processes. [default: 1]"
)
@click.option(
    "--tokens-per-s",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="With --dry-run: expected tokens per second of all processes, to predict the time.",
)
@click.pass_obj  # None, or a function to call instead of `pipeline.distill.distill`, from a program that embeds this
def distill(
    run: Callable[..., DistillResult] | None,
    /,
    config: str | None,
    dry_run: bool,
    ranks: int | None,
    tokens_per_s: float | None,
    **flags: str | None,
) -> int:
    """Distil a teacher into a smaller student.

    The defaults below are for a new student. If --student has weights, some defaults are different: the run prints
    these first. A resumed run takes its settings from its checkpoint, so --resume latest and --out are enough.

    Every setting belongs to a group: --temperature can also be written --objective.temperature. Every setting is also
    a key of the file --config (or REFERENCE_TRAINER_CONFIG), at the top level or in the table of its group, and an
    environment variable such as REFERENCE_TRAINER_BATCH_SIZE. A flag takes precedence over a variable, a variable over
    the file. The variables APR_DISTILL_MAX_STEPS, APR_DISTILL_LOG_EVERY, APR_DISTILL_CHECKPOINT_EVERY and
    APR_DISTILL_PROJECT_TO_STEPS are aliases of --smoke, --log-every, --save-every and --project-to-steps.

    Exit codes: 0 success; 1 the run failed, or a check of a smoke run did not pass; 2 a setting was refused; 70 an
    internal error; 75 interrupted, and a checkpoint was saved: continue with --resume latest; 130 interrupted, and no
    checkpoint was saved.
    """
    if dry_run:
        return guarded(lambda: _plan(flags, config, ranks or 1, tokens_per_s))
    if ranks is not None or tokens_per_s is not None:
        raise click.UsageError("--ranks and --tokens-per-s have no effect without --dry-run; leave them out")
    return guarded(lambda: _distil(flags, config, run))


def _plan(flags: dict[str, str | None], config: str | None, ranks: int, tokens_per_s: float | None) -> int:
    settings = gather_settings(flags, config)
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.pipeline.planning import plan, plan_lines  # imports torch, so after all checks

    lines = Lines()
    for line in plan_lines(plan(settings, ranks=ranks), tokens_per_s=tokens_per_s):
        lines.write(line)
    return 0


def _distil(flags: dict[str, str | None], config: str | None, run: Callable[..., DistillResult] | None) -> int:
    settings = gather_settings(flags, config)
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.pipeline.distill import distill  # imports torch, so after all checks
    from reference_trainer.pipeline.report import result_lines

    lines = Lines()
    interrupts.raise_once()
    try:
        result = (run or distill)(settings, lines=lines)
    finally:
        interrupts.ignore()
    if settings.run.smoke is not None:
        return 0 if result.go else FAILED
    if rank_of_process() == 0:
        for line in result_lines(result.train, result.held_back, result.output, result.unit):
            lines.write(line)
    return 0


def settings_of(arguments: list[str], *commands: click.Command) -> Settings | None:
    """Return the settings of a command, from its arguments, environment variables and a file.

    Args:
        arguments: The name of a command, then its arguments.
        commands: Commands that have settings, in addition to `distill`.

    Returns:
        The settings; None if the command is neither `distill` nor in `commands`.

    Raises:
        SettingError: A setting is invalid, or the arguments contain --dry-run.
        click.UsageError: An option is unknown or its value has the wrong type.
        click.exceptions.Exit: The arguments contain --help, and the help was printed.
    """
    by_name = {command.name: command for command in (distill, *commands)}
    if not arguments or arguments[0] not in by_name:
        return None
    options = dict(by_name[arguments[0]].make_context(arguments[0], arguments[1:]).params)
    config = options.pop("config")
    if options.get("dry_run"):
        raise SettingError("--dry-run runs in one process: use `distill --dry-run --ranks N` without a launcher")
    return gather_settings({name: text for name, text in options.items() if name in ALL}, config)


def gather_settings(flags: Mapping[str, str | None], config: str | None) -> Settings:
    """Return the settings from flags, environment variables and the file `config`.

    A flag that the user did not write is None in `flags`.
    """
    if config == "":
        raise SettingError("invalid value '' for --config: expected a path")
    texts = {name: text for name, text in flags.items() if text is not None}
    return gather(texts, os.environ, Path(config) if config else None)
