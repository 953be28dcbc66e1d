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


class SettingOption(click.Option):
    """A flag of a setting: the flat flag, such as `--temperature`, or the dotted `--objective.temperature`.

    Dotted flags are hidden in help.

    Args:
        name: The flat or dotted name.
        setting: The flat name.
    """

    def __init__(self, name: str, setting: str) -> None:
        field, kind = FIELDS[setting], kind_of(FIELDS[setting])
        kwargs: dict[str, Any] = {"metavar": kind.metavar} if kind.metavar else {"flag_value": "true"}
        default = "" if field.default in (None, False) else f" [default: {field.default}]"
        flag = f"--{name.replace('_', '-')}"
        hidden = name != setting
        super().__init__([flag, "value"], default=None, help=f"{field.description}{default}", hidden=hidden, **kwargs)
        self.name, self.group = name, DOTTED[setting].partition(".")[0]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the row of help, with the dotted flag too if it is not the group and the flat name."""
        record, dotted = super().get_help_record(ctx), DOTTED.get(self.name or "", "")
        if record is None or dotted == f"{self.group}.{self.name}":
            return record
        flag = self.opts[0]
        return record[0].replace(flag, f"{flag}, --{dotted.replace('_', '-')}"), record[1]


class SettingsCommand(click.Command):
    """A command whose help lists settings by their groups."""

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
    """Add the options of every setting. Values stay text, which `gather` parses; its errors name the option."""
    # click reverses `__click_params__`, since decorators run from the last to the first.
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
    help="With --dry-run: predicted tokens of all processes in a second, for the time.",
)
@click.pass_obj  # a function that replaces `pipeline.distill.distill`, for programs that embed this command; or None
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

    A --student with weights has other defaults than those below, which the run prints first. A resumed run has the
    settings of its checkpoint, so that --resume latest and --out are enough.

    A setting such as --temperature is in a group, and can be written --objective.temperature too. Every setting is also
    a key of the file --config (or REFERENCE_TRAINER_CONFIG), at its top or in the table of its group, and an
    environment variable such as REFERENCE_TRAINER_BATCH_SIZE. A flag takes precedence over a variable, a variable over
    the file. The variables APR_DISTILL_MAX_STEPS, APR_DISTILL_LOG_EVERY, APR_DISTILL_CHECKPOINT_EVERY and
    APR_DISTILL_PROJECT_TO_STEPS are aliases of --smoke, --log-every, --save-every and --project-to-steps.

    Exit codes: 0 success; 1 the run failed, or a check of a smoke run did not pass; 2 a setting was refused; 70 an
    internal error; 75 interrupted after a checkpoint was saved: go on with --resume latest; 130 interrupted otherwise.
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
    """Return the settings of `distill SETTING...`, or of one of the `commands`; None for another command.

    arguments: the name of a command, and its arguments.
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
    """Return the settings of a command. Flags that the user did not give are None in `flags`."""
    if config == "":
        raise SettingError("invalid value '' for --config: expected a path")
    texts = {name: text for name, text in flags.items() if text is not None}
    return gather(texts, os.environ, Path(config) if config else None)
