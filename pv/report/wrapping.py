"""Format lines for a terminal: wrap them with a hanging indent, and quote the line of a contract for a finding."""

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


def hanging(line: str, width: int, indent: int = 4) -> str:
    """Wrap a line that is longer than `width`; its further lines are indented by `indent` more than the first."""
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


def excerpt(finding: Finding) -> Iterator[str]:
    """Yield the contract's line of a finding, a mark below its column, and the command that explains its code."""
    line, column = finding.location.line, finding.location.column
    try:
        text = finding.location.path.read_text(encoding="utf-8", errors="replace").splitlines()[line - 1]
    except (OSError, IndexError):
        text = ""
    if text and column <= MAX_WIDTH:
        yield f"  {line:>5} | {text[:MAX_WIDTH]}"
        yield f"        | {' ' * (column - 1)}^"
    yield f"        = pv explain {finding.code}"
