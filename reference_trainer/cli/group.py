"""The group of commands, which every command of the reference trainer is added to."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from reference_trainer import __version__, interrupts
from reference_trainer.cli.reporting import FAILED, print_error
from reference_trainer.config.refusals import ELSEWHERE

__all__ = ["main"]


class _Closed(io.StringIO):
    """Replacement of a standard output that was closed before the start; every write raises `OSError`."""

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
                (_suggesting(error) if isinstance(error, click.NoSuchOption) else error).show()
            code = error.exit_code
        except OSError as error:
            if error.errno is None or error.filename is not None:  # a shared library or a file, not a stream
                raise
            print_error(f"cannot write to standard output: {error.strerror}")
            code = FAILED
        finally:
            interrupts.ignore()
        _leave(code or 0)


def _suggesting(error: click.NoSuchOption) -> click.UsageError:
    """Return an error that suggests the option that other trainers call so, if the command has it."""
    meant = ELSEWHERE.get(error.option_name.lstrip("-").replace("-", "_"), "")
    flag = f"--{meant.replace('_', '-')}"
    if error.ctx is None or not any(flag in param.opts for param in error.ctx.command.params):
        return error
    return click.UsageError(f"No such option {error.option_name!r}. Did you mean {flag!r}?", ctx=error.ctx)


def _leave(code: int) -> NoReturn:
    """Exit, also if an observer is stuck. Its module imports no torch, but a command without a run needs none of it."""
    _drop_unwritten()
    observers = sys.modules.get("reference_trainer.callbacks.observers")
    if observers is not None:
        observers.leave(code)
    sys.exit(code)


def _drop_unwritten() -> None:
    """Discard what a standard output that failed, and was reported, still holds: Python would exit with code 120."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reference-trainer")
def main() -> None:
    """Train a small language model by knowledge distillation.

    Loss, training, callbacks, settings and files are under contracts; the commands, signals, processes, plots and what
    a terminal shows are covered by tests alone.
    """
