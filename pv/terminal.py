"""What the commands share: options that are read, reports that are written, a line that shows progress."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pv.errors import UsageError

if TYPE_CHECKING:
    from pv.campaign import Progress


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """CONTRACT=TARGET options as a mapping. Raises UsageError for another form."""
    pairs = {}
    for text in texts:
        contract, sign, target = text.partition("=")
        if not sign or not contract or not target:
            raise UsageError(f"--subject {text!r}: write it as CONTRACT=module or CONTRACT=module:attribute")
        pairs[contract] = target
    return pairs


def print_whole(text: str) -> None:
    """Writes a report as it is. A reader that leaves early does not change what was found, nor the exit code."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def known_format(form: str, known: Sequence[str]) -> None:
    """Raises UsageError for a format that is none of the `known`."""
    if form not in known:
        raise UsageError(f"there is no format {form!r}; the formats are {', '.join(known)}")


def output(text: str, known: Sequence[str]) -> tuple[str, Path]:
    """A FORMAT=FILE option. Raises UsageError for another form, an unknown format or a missing folder."""
    form, sign, file = text.partition("=")
    if not sign or not file:
        raise UsageError(f"--output {text!r}: write it as FORMAT=FILE, for example markdown=report.md")
    known_format(form, known)
    if not Path(file).parent.is_dir():
        raise UsageError(f"--output {text!r}: there is no folder {Path(file).parent}")
    return form, Path(file)


def write(file: Path, text: str) -> None:
    """Writes a report to a file. Raises UsageError where that is not possible."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the report could not be written to {file}: {error.strerror}") from error


@contextmanager
def live() -> "Iterator[Callable[[Progress], None]]":
    """A line on the terminal that says what is running; nothing where standard error is no terminal."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting workers") as status:
        yield lambda p: status.update(Text(f"{p.done} of {p.total} tasks; running {', '.join(p.running) or 'none'}"))
