"""The command line of the reference trainer: it reads settings, calls, and says what came of it."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reference_trainer import __version__, interrupts
from reference_trainer.errors import SettingError, TrainerError
from reference_trainer.settings import Settings
from reference_trainer.sources import gather

if TYPE_CHECKING:
    from reference_trainer.distill import DistillResult
    from reference_trainer.progress import Lines

FAILED, REFUSED, OUR_BUG = 1, 2, 70
_OF_THE_EXTRA = ("numpy", "safetensors", "torch")


class _Closed(io.StringIO):
    """A standard output that was closed before the start: what is written there is lost, and that is an error."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _Group(click.Group):
    """Commands whose standard output may be lost: one line instead of a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        sys.stdout = sys.stdout or _Closed()
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            with suppress(OSError):
                error.show()
            code = error.exit_code
        except OSError as error:
            if error.errno is None or error.filename is not None:  # a library that can't be loaded, a file
                raise
            _complain(f"standard output can't be written: {error.strerror}")
            code = FAILED
        finally:
            interrupts.ignore()
        sys.exit(code or 0)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reference-trainer")
def main() -> None:
    """A knowledge-distillation trainer whose behaviour is under contract."""


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """An option for every setting. Values stay text until `gather` knows where each came from."""
    for each in reversed(fields(Settings)):
        kind = each.metadata["kind"]
        flag = f"--{each.name.replace('_', '-')}"
        if kind.metavar == "":
            option = click.option(flag, flag_value="true", default=None, help=each.metadata["help"])
        else:
            default = "" if each.default is None else f" [default: {each.default}]"
            option = click.option(flag, metavar=kind.metavar, help=each.metadata["help"] + default)
        command = option(command)
    return command


@main.command()
@_options
@click.option("--config", metavar="PATH", help="TOML file of settings, such as batch_size = 32.")
def distill(config: str | None, **flags: str | None) -> int:
    """Distil a teacher into a smaller student.

    Each setting can also stand in the file --config (or REFERENCE_TRAINER_CONFIG), or in an environment variable such
    as REFERENCE_TRAINER_BATCH_SIZE: a flag counts before the environment, that before the file. APR_DISTILL_MAX_STEPS,
    APR_DISTILL_LOG_EVERY and APR_DISTILL_PROJECT_TO_STEPS stand for --smoke, --log-every and --project-to-steps.

    Exit code 0: done; 1: the run failed, or a smoke run found a reason against a long one; 2: a setting was refused;
    70: a bug; 130: interrupted, by whichever signal.
    """
    given = {name: text for name, text in flags.items() if text is not None}
    return _guarded(lambda: _distil(given, config))


def _distil(flags: dict[str, str], config: str | None) -> int:
    if config == "":
        raise SettingError("--config is ''; expected a path")
    settings = gather(flags, os.environ, Path(config) if config else None)
    from reference_trainer.distill import distill as run  # torch is loaded here, after everything was checked
    from reference_trainer.progress import Lines

    lines = Lines()
    interrupts.clean_up_first()
    try:
        result = run(settings, lines=lines)
    finally:
        interrupts.ignore()
    if settings.smoke is not None:
        return 0 if result.go else FAILED
    _say_what_came_out(result, lines)
    return 0


def _say_what_came_out(result: DistillResult, lines: Lines) -> None:
    run = result.train
    first, last = run.initial_loss, run.final_loss
    losses = "no token was scored" if first is None else f"distillation loss {first:.4f} to {last:.4f}"
    ended = ", stopped by a callback" if run.stopped else ""
    lines.write(
        f"{run.steps_completed} steps in {run.elapsed_s:.1f}s ({run.steps_per_s:.2f} step/s, "
        f"{run.tokens / max(run.elapsed_s, 1e-9):,.0f} tokens/s): {losses}{ended}"
    )
    for name, total in result.held_back.items():
        lines.write(f"held-back {name}: {total.sum / total.count:.4f} nats per byte over {total.count} bytes")
    lines.write(f"wrote {result.output}")


def _guarded(work: Callable[[], int]) -> int:
    """The exit code of `work`; what was refused or failed is told in one line, a bug of ours with its traceback."""
    try:
        return work()
    except SettingError as error:
        _complain(_text_of(error))
        return REFUSED
    except (TrainerError, OSError, MemoryError) as error:
        _complain(_text_of(error))
        return FAILED
    except KeyboardInterrupt as error:
        written = interrupts.WRITTEN in getattr(error, "__notes__", [])
        _complain(_text_of(error, "interrupted" if written else interrupts.SAID))
        return interrupts.INTERRUPTED
    except Exception as error:
        if _is_lack_of_memory(error):
            _complain(_text_of(error))
            return FAILED
        if isinstance(error, ModuleNotFoundError) and error.name in _OF_THE_EXTRA:
            _complain(f"{error.name} is not installed: pip install 'pv-contracts[trainer]'")
            return FAILED
        _tell(f"{traceback.format_exc()}This is a bug of reference-trainer: please report it with the lines above.")
        return OUR_BUG


def _is_lack_of_memory(error: Exception) -> bool:
    # By name and text: torch may not be loaded, and on the CPU its error is a bare RuntimeError.
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _text_of(error: BaseException, said: str = "") -> str:
    """What an error says, or what is said of it, and its notes: in one line."""
    notes = (f"({note})" for note in getattr(error, "__notes__", []))
    said = said or str(error).strip() or type(error).__name__
    return " ".join(" ".join((said, *notes)).split())


def _complain(text: str) -> None:
    _tell(f"error: {text}")


def _tell(text: str) -> None:
    with suppress(OSError):  # nobody is listening; the exit code still says it
        click.echo(text, err=True)


@main.command()
def schema() -> None:
    """Print the JSON Schema of the lines that --trace writes."""
    from reference_trainer.trace import schema as text

    click.echo(text(), nl=False)


@main.command()
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--vocabulary", type=click.IntRange(2, 10**6), default=512, show_default=True)
@click.option("--positions", type=click.IntRange(1, 10**6), default=64, show_default=True)
@click.option("--seed", type=click.IntRange(0, 10**18), default=0, show_default=True)
def gradcheck(**asked: Any) -> int:
    """Compare the closed-form gradient with automatic differentiation on this machine, in float64.

    Exit code 1 when they differ: then no run on this device can be trusted.
    """
    return _guarded(lambda: _gradcheck(**asked))


def _gradcheck(device: str, vocabulary: int, positions: int, seed: int) -> int:
    device = Settings(device=device).device
    from reference_trainer.gradients import AGREE, differences
    from reference_trainer.placement import usable_device
    from reference_trainer.progress import Lines

    lines, agree, place = Lines(), True, usable_device(device)
    for temperature, difference in differences(place, (2, positions, vocabulary), seed):
        lines.write(f"temperature {temperature:5.2f}: relative difference {difference:.2e}")
        agree = agree and difference <= AGREE
    lines.write(f"{'agree' if agree else 'DIFFER'} on {place}: at most {AGREE:.0e} is rounding")
    return 0 if agree else FAILED
