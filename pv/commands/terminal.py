"""Functions that several commands use: parse options, write reports, show a progress line."""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pv.errors import UsageError

if TYPE_CHECKING:
    from pv.execution.consumers import Progress


def parse_subjects(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of `--subject CONTRACT=TARGET`: targets by contract. Raise UsageError for an invalid value."""
    subjects = {}
    for text in texts:
        contract, _, target = text.partition("=")
        if not contract or not target:
            raise UsageError(f"invalid value {text!r} for --subject: expected CONTRACT=module[:attribute]")
        subjects[contract] = target
    return subjects


def uses_color() -> bool:
    """Return whether standard output is a terminal and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int:
    """Return the value of the variable COLUMNS, else the width of the terminal in columns; 80 if there is neither."""
    return shutil.get_terminal_size().columns


def wrap_width() -> int:
    """Return the width of the terminal; 0, which means do not wrap text, if standard output is not a terminal."""
    return terminal_width() if sys.stdout.isatty() else 0


def repository_folder() -> str:
    """Return the path of the working directory relative to the repository of a GitHub Actions job; "" if not inside."""
    here = Path.cwd().resolve()
    root = Path(os.environ.get("GITHUB_WORKSPACE") or here).resolve()
    return here.relative_to(root).as_posix() if here != root and here.is_relative_to(root) else ""


def print_text(text: str) -> None:
    """Write a text to standard output. If a reader such as `head` closes it early, the exit code does not change."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirect a closed standard output to the null device; else Python cannot flush it and exits with code 120."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_output(text: str, formats: Sequence[str]) -> tuple[str, Path]:
    """Return the format and the file of an option `--output FORMAT=FILE`. Raise UsageError if either is invalid."""
    form, _, file = text.partition("=")
    if not file:
        raise UsageError(f"invalid value {text!r} for --output: expected FORMAT=FILE, such as markdown=report.md")
    if form not in formats:
        raise UsageError(f"unknown format {form!r} (choose from {', '.join(formats)})")
    if not Path(file).parent.is_dir():
        raise UsageError(f"invalid value {text!r} for --output: no such folder: {Path(file).parent}")
    return form, Path(file)


def write_report(file: Path, text: str) -> None:
    """Write a report to a file. Raise UsageError if the file cannot be written."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the report to {file}: {error.strerror}") from error


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection. Later collections ignore all objects that exist at the end of the pause."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Most of these objects are syntax trees that live until the command ends. A collection would visit all of them
        # and free none.
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def progress_line() -> "Iterator[Callable[[Progress], None]]":
    """Show a progress line on standard error if it is a terminal, and yield the function that updates it."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting workers") as status:

        def update(progress: "Progress") -> None:
            running = ", ".join(progress.running) or "none"
            status.update(Text(f"{progress.done} of {progress.total} tasks; running {running}"))

        yield update
