"""The commands that run `distill` in other processes: `until` and `launch`, which also runs `precompute`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

import click

from reference_trainer import interrupts
from reference_trainer.cli.distillation import settings_of
from reference_trainer.cli.group import guarded, main, print_error, print_line
from reference_trainer.cli.tools import precompute
from reference_trainer.config.settings import Settings
from reference_trainer.errors import SettingError

if TYPE_CHECKING:
    from reference_trainer.supervision.machines import Machines

_command = click.argument("command", nargs=-1, type=click.UNPROCESSED)
_processes_option = partial(
    click.option, "--nproc-per-node", type=click.IntRange(1, 1024), help="Number of processes on each machine."
)


class _MachineOptions(TypedDict):
    """The values of the options in `_machine_options`, and of `--node-rank`, which only `until` has."""

    nnodes: int
    rdzv_endpoint: str | None
    rdzv_id: str
    local_addr: str | None
    node_rank: NotRequired[int | None]


class _UntilOptions(_MachineOptions):
    """The values of the options of `until`."""

    step: int | None
    max_retries: int
    max_idle: int
    silent_after: float
    nproc_per_node: int


def _machine_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a command that runs on several machines."""
    options = (
        click.option(
            "--nnodes",
            type=click.IntRange(1, 10**4),
            default=1,
            show_default=True,
            help="Number of machines; start the same command on each machine.",
        ),
        click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Address of the machine at which all connect."),
        click.option(
            "--rdzv-id", default="reference-trainer", show_default=True, help="Name of the run, equal on all machines."
        ),
        click.option(
            "--local-addr", metavar="HOST", help="Address of this machine for the others. [default: its host name]"
        ),
    )
    for option in reversed(options):  # the help lists the option first that is added last
        command = option(command)
    return command


@main.command(context_settings={"ignore_unknown_options": True, "max_content_width": 120})
@click.option(
    "--step",
    type=click.IntRange(1, 10**18),
    help="Step at which the run ends, in place of its --max-steps. [default: its planned end]",
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
    help="Kill a process without a heartbeat for S seconds; a stopped process after 2 seconds.",
)
@_processes_option(default=1, show_default=True)
@_machine_options
@click.option("--node-rank", type=click.IntRange(0), help="With --nnodes: number of this machine, from 0; 0 decides.")
@_command
def until(command: tuple[str, ...], **options: Unpack[_UntilOptions]) -> int:
    """Run `distill` to its end, resuming after failures.

    Usage: until [--step N] -- distill SETTING...; with --step, the run ends at that step.

    After a crash, a kill or a hang, the run resumes from its newest undamaged checkpoint; damaged ones are renamed. A
    process that takes no step for the time of --hang-after exits. When this command ends for any reason, its processes
    end too.

    On several machines, start the same command on each, with --nnodes, --rdzv-endpoint, and --node-rank 0, 1, ...; all
    machines must share the file system of --out. After the loss of a machine, start its command again to let it join.

    Exit codes: 0 the run reached its end or the step, and its model is written; 1 failed; 2 a setting or the input was
    refused; 3 attempts made no progress, or had the same error; 4 no retry is left; 5 the run ended before the step; 75
    interrupted: run the same command again to continue.
    """
    return guarded(lambda: _until(list(command), options))


def _until(command: list[str], options: _UntilOptions) -> int:
    from reference_trainer.pipeline.defaults import latest_settings
    from reference_trainer.supervision.until import Limits, find_problems, supervise

    settings = settings_of(command)
    if settings is not None and settings.checkpoints.resume is None and settings.run.smoke is None:
        settings = latest_settings(settings)
    messages = find_problems(settings, options["step"])
    if messages or settings is None:  # one of the messages reports missing settings
        raise SettingError("; ".join(messages))
    from reference_trainer.callbacks.progress import Lines

    _check_custom_code(settings)
    machines = _machines_of(options)
    limits = Limits(
        step=options["step"],
        max_retries=options["max_retries"],
        max_idle=options["max_idle"],
        silent_s=options["silent_after"],
    )
    interrupts.raise_once()
    try:
        ranks = options["nproc_per_node"]
        return int(supervise(settings, command[1:], limits, ranks=ranks, report=Lines().write, machines=machines))
    except KeyboardInterrupt:
        print_line("stopped on request; run the same command again to continue")
        return interrupts.SAVED
    finally:
        interrupts.ignore()


@main.command(context_settings={"ignore_unknown_options": True})
@_processes_option(required=True)
@_machine_options
@_command
def launch(command: tuple[str, ...], nproc_per_node: int, **machines: Unpack[_MachineOptions]) -> int:
    """Run `distill` or `precompute` in several processes.

    Usage: launch --nproc-per-node N -- distill SETTING...; `precompute` shares its work among the processes.

    On several machines, start the same command on each, with --nnodes and --rdzv-endpoint, as for torchrun. Instead of
    this command, you can use torchrun -m reference_trainer distill SETTING..., or a scheduler that sets the variables
    of torchrun.

    Exit codes: 0 success; 1 a process failed; 2 a setting was refused; 75 interrupted, and a checkpoint was saved; 130
    interrupted, and no checkpoint was saved.
    """
    return guarded(lambda: _launch(list(command), nproc_per_node, machines))


def _check_custom_code(settings: Settings) -> None:
    """Check custom callbacks and parts before any process is started. Their modules may be in the working directory."""
    if settings.run.callbacks is None and settings.run.parts is None:
        return
    from reference_trainer.callbacks.from_file import check_callbacks
    from reference_trainer.pipeline.custom_class import find_parts  # slow, because it imports torch

    sys.path.insert(0, str(Path.cwd()))
    try:
        check_callbacks(settings.run.callbacks)
        find_parts(settings)
    finally:
        sys.path.pop(0)


def _machines_of(options: _MachineOptions) -> Machines | None:
    """Return the machines of a run from its options; None for this machine alone."""
    from reference_trainer.supervision.machines import Machines

    count, endpoint, rank = options["nnodes"], options["rdzv_endpoint"], options.get("node_rank")
    if count == 1:
        for flag, value in (("--rdzv-endpoint", endpoint), ("--node-rank", rank)):
            if value is not None:
                raise SettingError(f"{flag} has no effect without --nnodes; leave it out")
        return None
    if endpoint is None or not endpoint.rpartition(":")[2].isdecimal():
        raise SettingError(f"--nnodes {count} needs --rdzv-endpoint HOST:PORT; it is {endpoint!r}")
    if "node_rank" in options and (rank is None or rank >= count):
        raise SettingError(f"until --nnodes {count} needs --node-rank 0 to {count - 1}, one for each machine")
    return Machines(
        count=count,
        endpoint=endpoint,
        run_id=options["rdzv_id"],
        address=options["local_addr"],
        rank=rank or 0,
    )


def _launch(command: list[str], ranks: int, options: _MachineOptions) -> int:
    from reference_trainer.supervision.until import launch

    settings = settings_of(command, precompute)
    if settings is None:
        raise SettingError("missing the run after --, such as `-- distill --out DIR`")
    _check_custom_code(settings)
    machines = _machines_of(options)
    interrupts.raise_once()
    try:
        return launch(command, ranks=ranks, report=print_error, machines=machines)
    finally:
        interrupts.ignore()
