"""Format lines for a terminal: escape control characters, wrap long lines, quote the line of a file for a finding."""

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pv.contract.finding import Finding

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


NARROWEST = 40
"""Width in columns below which lines are not wrapped."""
COMMANDS = ("rerun", "replay")
"""Labels of lines that are not wrapped, because users copy them into a shell."""
# A contract, or output of the code under contract, must not control the reader's terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Return the text with control characters as escapes, except line feeds and tabs."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def wrap_line(line: str, width: int, indent: int = 4) -> str:
    """Escape control characters, and wrap a line longer than `width` with `indent` more columns for later lines."""
    line = plain(line)
    if width < NARROWEST or len(line) <= width:
        return line
    margin = " " * (len(line) - len(line.lstrip()) + indent)
    return textwrap.fill(line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)


def wrap_styled(text: "Text", console: "Console", indent: int) -> "Iterator[Text]":
    """Yield the lines of a styled text, wrapped to the width of the console; wrapped lines are indented by `indent`."""
    for line in text.split("\n", allow_blank=True):
        short = line.cell_len <= console.width or console.width < NARROWEST
        if short or line.plain.strip().startswith(COMMANDS):
            yield line
            continue
        first, *rest = line.wrap(console, console.width - indent)
        yield first
        for part in rest:
            part.pad_left(indent)
            yield part


MAX_WIDTH = 120
"""Maximum number of characters of a quoted line."""


def excerpt(finding: Finding) -> Iterator[str]:
    """Yield the line that a finding is about, a caret below the column, and the command that explains the code.

    Line and caret are left out if the line cannot be read, is empty, or has the column beyond `MAX_WIDTH`.
    """
    line, column = finding.location.line, finding.location.column
    try:
        text = finding.location.path.read_text(encoding="utf-8", errors="replace").splitlines()[line - 1]
    except (OSError, IndexError):
        text = ""
    if text and column <= MAX_WIDTH:
        yield f"  {line:>5} | {plain(text[:MAX_WIDTH])}"
        yield f"        | {' ' * (column - 1)}^"
    yield f"        = pv explain {finding.code}"
