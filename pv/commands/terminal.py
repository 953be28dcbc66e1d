"""Functions that the commands share: parsing of options, writing of reports, a progress line."""

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
    """Return the options `--subject CONTRACT=TARGET` as a mapping. Raise UsageError for another form."""
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
    """Return the width of the terminal in columns; 80 if there is none."""
    return shutil.get_terminal_size().columns


def wrap_width() -> int:
    """Return the width at which text is wrapped: of the terminal; 0 if standard output is not a terminal."""
    return terminal_width() if sys.stdout.isatty() else 0


def repository_folder() -> str:
    """Return the path of the working directory below the repository of a GitHub Actions job; "" if it is not below."""
    here = Path.cwd().resolve()
    root = Path(os.environ.get("GITHUB_WORKSPACE") or here).resolve()
    return here.relative_to(root).as_posix() if here != root and here.is_relative_to(root) else ""


def print_text(text: str) -> None:
    """Write a report to standard output. If a reader such as `head` closes it early, the exit code stays the same."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirect a closed standard output to the null device: Python exits with code 120 if it cannot flush it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_output(text: str, formats: Sequence[str]) -> tuple[str, Path]:
    """Return format and file of an option `--output FORMAT=FILE`. Raise UsageError if it is invalid."""
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
    """Pause garbage collection, and exempt the objects that were created meanwhile from later collections."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Most of the objects are syntax trees, which live until the command ends: collections would only visit them.
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
