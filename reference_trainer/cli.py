"""The command line of the reference trainer: read settings, call the library, print the result."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from reference_trainer import __version__, interrupts
from reference_trainer.config.kinds import kind_of
from reference_trainer.config.place import placed
from reference_trainer.config.settings import Settings
from reference_trainer.errors import (
    LostRankError,
    RankError,
    SettingError,
    StopRequestedError,
    TrainerError,
    missing_package,
)

if TYPE_CHECKING:
    from reference_trainer.pipeline.distill import DistillResult

FAILED, REFUSED, INTERNAL_ERROR = 1, 2, 70
BUG_REPORT = "This is a bug in reference-trainer; please report it with the lines above."


class _Closed(io.StringIO):
    """Stand in for a standard output that was closed before the start; every write raises `OSError`."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _Group(click.Group):
    """A group of commands that reports a lost standard output in one line, without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        sys.stdout = sys.stdout or _Closed()
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            with suppress(OSError):
                error.show()
            code = error.exit_code
        except OSError as error:
            if error.errno is None or error.filename is not None:  # a shared library or a file, not a stream
                raise
            _error(f"cannot write to standard output: {error.strerror}")
            code = FAILED
        finally:
            interrupts.ignore()
        _leave(code or 0)


def _leave(code: int) -> NoReturn:
    """Exit, also if an observer is stuck. Its module imports no torch, but a command without a run needs none of it."""
    observers = sys.modules.get("reference_trainer.training.observers")
    if observers is not None:
        observers.leave(code)
    sys.exit(code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reference-trainer")
def main() -> None:
    """Train a small language model by knowledge distillation. Every behaviour is under contract."""


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """Add an option for every setting. Values stay text, because `gather` reads them and names their origin."""
    for name, field in reversed(Settings.model_fields.items()):
        flag, kind = f"--{name.replace('_', '-')}", kind_of(field)
        if kind.metavar == "":
            option = click.option(flag, flag_value="true", default=None, help=field.description)
        else:
            default = "" if field.default is None else f" [default: {field.default}]"
            option = click.option(flag, metavar=kind.metavar, help=f"{field.description}{default}")
        command = option(command)
    return command


@main.command()
@_options
@click.option("--config", metavar="PATH", help="Read settings, such as batch_size = 32, from this TOML file.")
@click.pass_obj  # what runs the distillation, for programs that embed this command; None for `pipeline.distill.distill`
def distill(run: Callable[..., DistillResult] | None, /, config: str | None, **flags: str | None) -> int:
    """Distil a teacher into a smaller student.

    Every setting is also a key of the file --config (or REFERENCE_TRAINER_CONFIG) and an environment variable such as
    REFERENCE_TRAINER_BATCH_SIZE. A flag takes precedence over a variable, a variable over the file. The variables
    APR_DISTILL_MAX_STEPS, APR_DISTILL_LOG_EVERY and APR_DISTILL_PROJECT_TO_STEPS are aliases of --smoke, --log-every
    and --project-to-steps.

    Exit codes: 0 success; 1 the run failed, or a check of a smoke run did not pass; 2 a setting was refused; 70 an
    internal error; 75 interrupted after a checkpoint was saved: go on with --resume latest; 130 interrupted otherwise.
    """
    given = {name: text for name, text in flags.items() if text is not None}
    return _guarded(lambda: _distil(given, config, run))


def _distil(flags: dict[str, str], config: str | None, run: Callable[..., DistillResult] | None) -> int:
    if config == "":
        raise SettingError("invalid value '' for --config: expected a path")
    from reference_trainer.config.sources import gather  # pydantic-settings is not needed for `--help`

    settings = gather(flags, os.environ, Path(config) if config else None)
    from reference_trainer.pipeline.distill import distill  # imports torch, so after all checks
    from reference_trainer.pipeline.report import result_lines
    from reference_trainer.training.lines import Lines

    lines = Lines()
    interrupts.raise_once()
    try:
        result = (run or distill)(settings, lines=lines)
    finally:
        interrupts.ignore()
    if settings.smoke is not None:
        return 0 if result.go else FAILED
    for line in result_lines(result.train, result.held_back, result.output) if _rank() == 0 else ():
        lines.write(line)
    return 0


def _guarded(work: Callable[[], int]) -> int:
    """Return the exit code of `work`. Print a failure in one line, an internal error with its traceback."""
    try:
        return work()
    except SettingError as error:
        _error(_line(error))
        return REFUSED
    except StopRequestedError as error:
        if _rank() == 0:
            _print_error(f"{_line(error)}; a checkpoint was saved: go on with --resume latest")
        return interrupts.SAVED
    except RankError as error:
        if _rank() == 0 or isinstance(error, LostRankError):  # the rank where it happened reports it too
            _error(_line(error))
        return FAILED
    except (TrainerError, OSError, MemoryError) as error:
        _error(_line(error))
        return FAILED
    except KeyboardInterrupt as error:
        written = any(isinstance(note, interrupts.WrittenNote) for note in getattr(error, "__notes__", []))
        _error(_line(error, "interrupted" if written else interrupts.NOT_WRITTEN))
        return interrupts.INTERRUPTED
    except Exception as error:
        if _is_out_of_memory(error):
            _error(_line(error))
            return FAILED
        if (message := missing_package(error)) is not None:
            _error(message)
            return FAILED
        _print_error(f"{traceback.format_exc()}{BUG_REPORT}")
        return INTERNAL_ERROR


def _is_out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")  # an error of torch's cannot be raised before torch is imported
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # On the CPU, torch raises a bare RuntimeError, which nothing but its text tells apart.
    return "can't allocate memory" in str(error)


def _line(error: BaseException, message: str = "") -> str:
    """Return the message of an error, `message` if that is given, and its notes in one line."""
    notes = (f"({note})" for note in getattr(error, "__notes__", []))
    message = message or str(error).strip() or type(error).__name__
    return " ".join(" ".join((message, *notes)).split())


def _error(text: str) -> None:
    rank = _rank()
    _print_error(f"error: {text}" if rank == 0 else f"error: rank {rank}: {text}")


def _rank() -> int:
    """Return the number of this process among those that train together; 0 if it is alone."""
    with suppress(SettingError):
        return placed(os.environ).rank
    return 0


def _print_error(text: str) -> None:
    with suppress(OSError):  # a lost standard error does not change the exit code
        click.echo(text, err=True)


@main.command(context_settings={"ignore_unknown_options": True, "max_content_width": 120})
@click.option("--step", type=click.IntRange(1, 10**18), help="The step that the run has to reach; its --max-steps.")
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
    help="Kill a process that was stopped for S seconds.",
)
@click.option(
    "--nproc-per-node", type=click.IntRange(1, 1024), default=1, show_default=True, help="Number of processes."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def until(command: tuple[str, ...], **options: Any) -> int:
    """Run `distill` until it has reached a step: until --step N -- distill SETTING...

    After a crash, a kill or a hang the run resumes from its newest whole checkpoint. A damaged one is renamed. A
    process that takes no step for --hang-after S (default 1800) exits, and ends with this command, however that ends.

    Exit codes: 0 the run reached the step, and its model is written; 1 failed; 2 a setting was refused; 3 attempts
    made no progress; 4 no retry is left; 5 the run ended before the step; 75 interrupted: the same command goes on.
    """
    return _guarded(lambda: _until(list(command), options))


def _until(command: list[str], options: dict[str, Any]) -> int:
    from reference_trainer.supervision.until import Limits, problems, supervised
    from reference_trainer.training.lines import Lines

    settings = _settings_of(command)
    if (found := problems(settings, options["step"])) or settings is None:
        raise SettingError("; ".join(found))
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
        _print_error("stopped on request; the same command goes on")
        return interrupts.SAVED
    finally:
        interrupts.ignore()


def _settings_of(command: list[str]) -> Settings | None:
    """Return the settings of `distill SETTING...`; None without them."""
    from reference_trainer.config.sources import gather

    if command[:1] != ["distill"]:
        return None
    given = dict(distill.make_context("distill", command[1:]).params)
    config = given.pop("config")
    flags = {name: text for name, text in given.items() if text is not None}
    return gather(flags, os.environ, Path(config) if config else None)


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--nproc-per-node", type=click.IntRange(1, 1024), required=True, help="Number of processes.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def launch(command: tuple[str, ...], nproc_per_node: int) -> int:
    """Run `distill` in several processes on this machine: launch --nproc-per-node N -- distill SETTING...

    On several machines, use torchrun -m reference_trainer distill SETTING..., or a scheduler that sets its variables.

    Exit codes: 0 success; 1 a process failed; 2 a setting was refused; 130 interrupted.
    """
    return _guarded(lambda: _launch(list(command), nproc_per_node))


def _launch(command: list[str], ranks: int) -> int:
    from reference_trainer.supervision.launch import launch

    if _settings_of(command) is None:
        raise SettingError("missing the run after --, such as `-- distill --out DIR`")
    interrupts.raise_once()
    try:
        return launch(command, ranks=ranks, report=_error)
    finally:
        interrupts.ignore()


@main.command()
@click.argument("name", type=click.Choice(["trace", "settings", "metrics"]), default="trace")
def schema(name: str) -> None:
    """Print the JSON Schema of the lines that --trace writes, of a file of settings, or of metrics.jsonl."""
    if name == "settings":
        from reference_trainer.config.settings import schema as text
    elif name == "metrics":
        from reference_trainer.training.metrics_file import schema as text
    else:
        from reference_trainer.training.trace import schema as text

    click.echo(text(), nl=False)


@main.command()
@click.option("--device", default="auto", show_default=True, help="Compute on auto, cpu, cuda or cuda:N.")
@click.option("--vocabulary", type=click.IntRange(2, 10**6), default=512, show_default=True, help="Number of tokens.")
@click.option("--positions", type=click.IntRange(1, 10**6), default=64, show_default=True, help="Sequence length.")
@click.option("--seed", type=click.IntRange(0, 10**18), default=0, show_default=True, help="Seed of the logits.")
def gradcheck(**options: Any) -> int:
    """Compare the closed-form gradient with automatic differentiation, in float64.

    Exit code 1 if they differ; then no run on this device can be trusted.
    """
    return _guarded(lambda: _gradcheck(**options))


def _gradcheck(device: str, vocabulary: int, positions: int, seed: int) -> int:
    device = Settings(device=device).device
    from reference_trainer.distillation.gradcheck import AGREE, differences
    from reference_trainer.models.placement import usable_device
    from reference_trainer.training.lines import Lines

    lines, agree, place = Lines(), True, usable_device(device)
    for temperature, difference in differences(place, (2, positions, vocabulary), seed):
        lines.write(f"temperature {temperature:5.2f}: relative difference {difference:.2e}")
        agree = agree and difference <= AGREE
    lines.write(f"{'agree' if agree else 'DIFFER'} on {place}: at most {AGREE:.0e} is rounding")
    return 0 if agree else FAILED


@main.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--out", metavar="FILE", default="metrics.png", show_default=True, help="Write this .png or .svg file.")
@click.option("--metric", "metrics", metavar="NAME", multiple=True, help="Draw this metric only; repeatable.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def plot(runs: tuple[str, ...], out: str, metrics: tuple[str, ...], force: bool) -> int:
    """Draw loss, learning rate and other metrics of runs.

    A RUN is the output directory of a run, or its metrics.jsonl. Needs matplotlib (the extra `plot`).
    """
    return _guarded(lambda: _plot([Path(run) for run in runs], Path(out), metrics, force))


def _plot(runs: list[Path], out: Path, metrics: tuple[str, ...], force: bool) -> int:
    from reference_trainer.pipeline.plot import plot
    from reference_trainer.training.lines import Lines

    plot(runs, out, metrics=metrics, force=force)
    Lines().write(f"wrote {out}")
    return 0


@main.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--export",
    type=(click.IntRange(0, 10**18), click.Path(path_type=Path)),
    metavar="STEP OUT",
    default=None,
    help="Write the student of this step as a model directory.",
)
def checkpoints(directory: str, export: tuple[int, Path] | None) -> int:
    """List the checkpoints of a run and verify every file.

    DIR is the output directory of a run, or the directory of its checkpoints. With --export, one of them is written as
    a model that --teacher accepts instead.

    Exit code 1 if a checkpoint is damaged, or if there is none.
    """
    return _guarded(lambda: _checkpoints(Path(directory), export))


def _checkpoints(directory: Path, export: tuple[int, Path] | None) -> int:
    from reference_trainer.pipeline.checkpoint_list import export_checkpoint, list_checkpoints, table
    from reference_trainer.training.lines import Lines

    lines = Lines()
    if export is not None:
        step, out = export
        export_checkpoint(directory, step, out)
        lines.write(f"wrote {out}")
        return 0
    found = list_checkpoints(directory)
    for line in table(found):
        lines.write(line)
    return FAILED if any(each.fault is not None for each in found) else 0
