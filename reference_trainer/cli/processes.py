"""The commands that run `distill` in processes of their own: `until` and `launch`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from reference_trainer import interrupts
from reference_trainer.cli.distillation import settings_of
from reference_trainer.cli.group import guarded, main, print_error, print_line
from reference_trainer.cli.tools import precompute
from reference_trainer.config.settings import Settings
from reference_trainer.errors import SettingError

_command = click.argument("command", nargs=-1, type=click.UNPROCESSED)
_ranks = partial(click.option, "--nproc-per-node", type=click.IntRange(1, 1024), help="Number of processes.")


@main.command(context_settings={"ignore_unknown_options": True, "max_content_width": 120})
@click.option(
    "--step",
    type=click.IntRange(1, 10**18),
    help="The step that the run has to reach; its --max-steps. [default: its planned end]",
)
@click.option("--max-retries", type=click.IntRange(0, 10**6), default=10, show_default=True, help="Number of retries.")
@click.option(
    "--max-idle",
    type=click.IntRange(1, 10**6),
    default=3,
    show_default=True,
    help="Give up after N attempts in a row without a new checkpoint.",
)
@click.option(
    "--silent-after",
    type=click.FloatRange(2, 10**6),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Kill a process that gave no sign of life for S seconds; a stopped one after 2.",
)
@_ranks(default=1, show_default=True)
@_command
def until(command: tuple[str, ...], **options: Any) -> int:
    """Run `distill` until it has come to its end, or reached a step: until [--step N] -- distill SETTING...

    After a crash, a kill or a hang the run resumes from its newest whole checkpoint. A damaged one is renamed. A
    process that takes no step for --hang-after S exits, and ends with this command, however that ends.

    Exit codes: 0 the run reached its end or the step, and its model is written; 1 failed; 2 a setting was refused; 3
    attempts made no progress; 4 no retry is left; 5 the run ended before the step; 75 interrupted: the same command
    goes on.
    """
    return guarded(lambda: _until(list(command), options))


def _until(command: list[str], options: dict[str, Any]) -> int:
    from reference_trainer.pipeline.defaults import latest_settings
    from reference_trainer.supervision.until import Limits, problems

    settings = settings_of(command)
    if settings is not None and settings.checkpoints.resume is None and settings.run.smoke is None:
        settings = latest_settings(settings)
    if (messages := problems(settings, options["step"])) or settings is None:
        raise SettingError("; ".join(messages))
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.supervision.until import supervised  # takes a while

    _check_own(settings)
    ranks = options.pop("nproc_per_node")
    limits = Limits(
        step=options["step"],
        max_retries=options["max_retries"],
        max_idle=options["max_idle"],
        silent_s=options["silent_after"],
    )
    interrupts.raise_once()
    try:
        return int(supervised(settings, command[1:], limits, ranks=ranks, report=Lines().write))
    except KeyboardInterrupt:
        print_line("stopped on request; the same command goes on")
        return interrupts.SAVED
    finally:
        interrupts.ignore()


@main.command(context_settings={"ignore_unknown_options": True})
@_ranks(required=True)
@click.option(
    "--nnodes",
    type=click.IntRange(1, 10**4),
    default=1,
    show_default=True,
    help="Number of machines; start the same command on each.",
)
@click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Meet the other machines at this one of them.")
@click.option("--rdzv-id", default="reference-trainer", show_default=True, help="Name of the run, equal on all.")
@click.option("--local-addr", metavar="HOST", help="Address of this machine for the others. [default: its host name]")
@_command
def launch(command: tuple[str, ...], nproc_per_node: int, **machines: Any) -> int:
    """Run `distill` in several processes: launch --nproc-per-node N -- distill SETTING...

    Or `precompute`, which shares its work among them.

    On several machines, start the same command on each, with --nnodes and --rdzv-endpoint: torchrun's rendezvous.
    torchrun -m reference_trainer distill SETTING... does the same, or a scheduler that sets its variables.

    Exit codes: 0 success; 1 a process failed; 2 a setting was refused; 75 interrupted, a checkpoint was saved; 130
    interrupted.
    """
    return guarded(lambda: _launch(list(command), nproc_per_node, machines))


def _check_own(settings: Settings) -> None:
    """Refuse own callbacks and parts once, and not in every process. These import from the working directory too."""
    if settings.run.callbacks is None and settings.run.parts is None:
        return
    from reference_trainer.callbacks.from_file import check_callbacks
    from reference_trainer.pipeline.custom_class import parts_named  # takes a while

    sys.path.insert(0, str(Path.cwd()))
    try:
        check_callbacks(settings.run.callbacks)
        parts_named(settings)
    finally:
        sys.path.pop(0)


def _launch(command: list[str], ranks: int, options: dict[str, Any]) -> int:
    endpoint, several = options["rdzv_endpoint"], options["nnodes"] > 1
    if several and not (endpoint or "").rpartition(":")[2].isdecimal():
        raise SettingError(f"--nnodes {options['nnodes']} needs --rdzv-endpoint HOST:PORT; it is {endpoint!r}")
    if endpoint is not None and not several:
        raise SettingError("--rdzv-endpoint has no effect without --nnodes; leave it out")
    from reference_trainer.supervision.until import Machines, launch

    settings = settings_of(command, precompute)
    if settings is None:
        raise SettingError("missing the run after --, such as `-- distill --out DIR`")
    _check_own(settings)
    machines = (
        Machines(count=options["nnodes"], endpoint=endpoint, run_id=options["rdzv_id"], address=options["local_addr"])
        if several
        else None
    )
    interrupts.raise_once()
    try:
        return launch(command, ranks=ranks, report=print_error, machines=machines)
    finally:
        interrupts.ignore()
