"""Functions shared by the commands: parsing of options, writing of reports, a progress line."""

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


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return CONTRACT=TARGET options as a mapping. Raise UsageError for another form."""
    pairs = {}
    for text in texts:
        contract, sign, target = text.partition("=")
        if not sign or not contract or not target:
            raise UsageError(f"invalid value {text!r} for --subject: expected CONTRACT=module[:attribute]")
        pairs[contract] = target
    return pairs


def uses_color() -> bool:
    """Return whether standard output is a terminal and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int:
    """Return the width of the terminal in columns; 80 if there is none."""
    return shutil.get_terminal_size().columns


def folder() -> str:
    """Return the working directory from the root of the repository in GitHub Actions; "" elsewhere."""
    root, here = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve(), Path.cwd().resolve()
    return here.relative_to(root).as_posix() if here != root and here.is_relative_to(root) else ""


def print_text(text: str) -> None:
    """Write a report to standard output. A reader that closes it early does not change the exit code."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirect standard output to the null device. Otherwise Python fails to flush it at exit, and exits with 120."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def columns() -> int:
    """Return the width of the terminal on standard output; 0 if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def output(text: str, formats: Sequence[str]) -> tuple[str, Path]:
    """Parse a FORMAT=FILE option. Raise UsageError for another form, an unknown format or a missing folder."""
    form, sign, file = text.partition("=")
    if not sign or not file:
        raise UsageError(f"invalid value {text!r} for --output: expected FORMAT=FILE, such as markdown=report.md")
    if form not in formats:
        raise UsageError(f"unknown format {form!r} (choose from {', '.join(formats)})")
    if not Path(file).parent.is_dir():
        raise UsageError(f"invalid value {text!r} for --output: no such folder: {Path(file).parent}")
    return form, Path(file)


def write(file: Path, text: str) -> None:
    """Write a report to a file. Raise UsageError where that is not possible."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the report to {file}: {error.strerror}") from error


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, then exempt all objects created meanwhile: syntax trees live until the command ends."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def live() -> "Iterator[Callable[[Progress], None]]":
    """Show a progress line on standard error if it is a terminal."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting workers") as status:
        yield lambda p: status.update(Text(f"{p.done} of {p.total} tasks; running {', '.join(p.running) or 'none'}"))
