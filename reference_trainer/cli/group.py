"""The group of commands. Turns an exception of a command into an exit code and a line on standard error."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import click

from reference_trainer import __version__, interrupts
from reference_trainer.config.kinds import OTHER_NAMES
from reference_trainer.config.place import read_place
from reference_trainer.errors import (
    CallbackNote,
    LostRankError,
    RankError,
    SettingError,
    StopRequestedError,
    TrainerError,
    missing_package,
)

FAILED, REFUSED, INTERNAL_ERROR = 1, 2, 70
"""Exit codes: the command failed, a setting or the input is invalid, or the program has a bug (`EX_SOFTWARE`)."""
BUG_REPORT = "This is a bug in reference-trainer; please report it with the lines above."


def guarded(work: Callable[[], int]) -> int:
    """Call `work` and return its exit code. Print an expected error in one line.

    Print an internal error, and an error of the user's callback, with a traceback. Raise `click.ClickException` again,
    and `click.exceptions.Exit`, which ends a command after its help is printed.
    """
    try:
        return work()
    except (click.ClickException, click.exceptions.Exit):
        raise
    except SettingError as error:
        print_error(line_of(error))
        return REFUSED
    except StopRequestedError as error:
        if rank_of_process() == 0:
            print_line(f"{line_of(error)}; a checkpoint was saved: go on with --resume latest")
        return interrupts.SAVED
    except RankError as error:
        # A rank that failed prints its own error. A rank that was killed cannot, so all other ranks print the loss.
        if rank_of_process() == 0 or isinstance(error, LostRankError):
            print_error(line_of(error))
        return FAILED
    except (TrainerError, OSError, MemoryError) as error:
        print_error(line_of(error))
        return FAILED
    except KeyboardInterrupt as error:
        has_model = _has_note(error, interrupts.WrittenNote)
        print_error(line_of(error, "interrupted" if has_model else interrupts.NOT_WRITTEN))
        return interrupts.INTERRUPTED
    except Exception as error:
        if _is_out_of_memory(error):
            print_error(line_of(error))
            return FAILED
        if (message := missing_package(error)) is not None:
            print_error(message)
            return FAILED
        if _has_note(error, CallbackNote):  # raised by the user's callback: the traceback shows the line
            print_line(traceback.format_exc().rstrip())
            print_error(line_of(error))
            return FAILED
        print_line(f"{traceback.format_exc()}{BUG_REPORT}")
        return INTERNAL_ERROR


def _has_note(error: BaseException, kind: type[str]) -> bool:
    """Return whether an error has a note of this type."""
    return any(isinstance(note, kind) for note in getattr(error, "__notes__", []))


def _is_out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")  # do not import torch: if it is not imported, the error cannot be its own
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # On the CPU, torch raises a plain RuntimeError, so only the text of the error tells that memory is lacking.
    return "can't allocate memory" in str(error)


def line_of(error: BaseException, message: str = "") -> str:
    """Return `message` and the notes of the error as one line; `message` is the message of the error by default."""
    notes = (f"({note})" for note in getattr(error, "__notes__", []))
    message = message or str(error).strip() or type(error).__name__
    return " ".join(" ".join((message, *notes)).split())


def print_error(text: str) -> None:
    """Print an error on standard error, with the number of this rank if it is not 0."""
    rank = rank_of_process()
    print_line(f"error: {text}" if rank == 0 else f"error: rank {rank}: {text}")


def rank_of_process() -> int:
    """Return the rank of this process in its run; 0 for a single process, or if the variables are invalid."""
    with suppress(SettingError):
        return read_place(os.environ).rank
    return 0


def print_line(text: str) -> None:
    """Print a line on standard error, if standard error is still open."""
    with suppress(OSError):  # a lost standard error does not change the exit code
        click.echo(text, err=True)


class _ClosedOutput(io.StringIO):
    """Replacement of a standard output that was closed before the start; every write raises `OSError`."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _Group(click.Group):
    """A group of commands that reports a closed standard output in one line, without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        sys.stdout = sys.stdout or _ClosedOutput()
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            shown = _suggest_option(error) if isinstance(error, click.NoSuchOption) else error
            with suppress(OSError):
                shown.show()
            code = error.exit_code
        except OSError as error:
            # Report only errors of a stream: they have a number and no file name. An error of a file has a file name,
            # and an error of a shared library has no number.
            if error.errno is None or error.filename is not None:
                raise
            print_error(f"cannot write to standard output: {error.strerror}")
            code = FAILED
        finally:
            interrupts.ignore()
        _leave(code or 0)


def _suggest_option(error: click.NoSuchOption) -> click.UsageError:
    """Return an error that suggests an option; `error` itself if there is no suggestion.

    An option is suggested for a name that other trainers use, and for a dotted name with a wrong group.
    """
    if error.ctx is None:
        return error
    name = error.option_name.lstrip("-").rpartition(".")[2]
    equivalent = OTHER_NAMES.get(name.replace("-", "_"), name).replace("_", "-")
    end = f".{equivalent}" if "." in error.option_name else f"--{equivalent}"
    for param in error.ctx.command.params:
        for flag in param.opts:
            if flag.endswith(end):
                message = f"No such option {error.option_name!r}. Did you mean {flag!r}?"
                return click.UsageError(message, ctx=error.ctx)
    return error


def _leave(code: int) -> NoReturn:
    """Exit the process, even if an observer is still running."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        # The failure was reported. Discard the rest: at exit, Python would try to write it again, and exit with 120.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Only a command with a run has imported the module that starts observers.
    observers = sys.modules.get("reference_trainer.callbacks.dispatch")
    if observers is not None:
        observers.leave(code)
    sys.exit(code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reference-trainer")
def main() -> None:
    """Train a small language model by knowledge distillation.

    Loss, training, callbacks, settings and files are under contracts; the commands, signals, processes, plots and what
    a terminal shows are covered by tests alone.
    """
