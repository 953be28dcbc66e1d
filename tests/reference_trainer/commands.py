"""The command line of the trainer, called in this process with a replacement for the distillation."""

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from reference_trainer import cli

Run = Callable[..., Any]
VARIABLES = ("REFERENCE_TRAINER_", "APR_DISTILL_")


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code of a command, or the exception that it raised, and its output."""

    code: Any
    output: str
    complaints: str


def command(
    *arguments: str,
    out: io.StringIO | None = None,
    err: io.StringIO | None = None,
    closed: bool = False,
    run: Run | None = None,
    **variables: str,
) -> Ended:
    """Run `reference-trainer` with these arguments, streams and variables, and return how it ended.

    closed: standard output was closed before the start. run: called instead of the distillation.
    """
    out, err = out or io.StringIO(), err or io.StringIO()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    code: Any = None
    environment = mock.patch.dict(os.environ, {**kept, **variables}, clear=True)
    with environment, redirect_stdout(None if closed else out), redirect_stderr(err):
        try:
            cli.main(list(arguments), prog_name="reference-trainer", obj=run)
        except SystemExit as error:
            code = error.code
        except Exception as error:
            code = error
    return Ended(code, out.getvalue(), err.getvalue())


def distilling(run: Run, *arguments: str, **options: Any) -> Ended:
    """Run `reference-trainer distill` with `run` as its distillation."""
    return command("distill", *arguments, run=run, **options)


def raising(error: BaseException) -> Run:
    def run(*arguments: Any, **named: Any) -> Any:
        raise error

    return run


def result() -> Any:
    """Return a result of a distillation, as far as the command line reads it."""
    trained = {"initial_loss": 2.0, "final_loss": 1.0, "steps_completed": 9, "elapsed_s": 4.0, "tokens": 360}
    train = SimpleNamespace(**trained, steps_per_s=2.25, stopped=False)
    return SimpleNamespace(train=train, held_back={}, output=Path("out"), go=True, unit="byte")


class Failing(io.StringIO):
    """A stream that cannot be written; it raises at `flush`, like a buffer, or at `write`."""

    def __init__(self, error: OSError, *, at_flush: bool = False) -> None:
        super().__init__()
        self.error, self.at_flush = error, at_flush

    def write(self, text: str) -> int:
        if self.at_flush:
            return len(text)
        raise self.error

    def flush(self) -> None:
        if self.at_flush and self in (sys.stdout, sys.stderr):
            raise self.error
