"""The formats of a report. They format what the verdict says and conclude nothing."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from pv.errors import UsageError

if TYPE_CHECKING:
    from pv.results.verdict import Report

__all__ = ["COMPARISON_FORMATS", "FORMATS", "View", "render"]

# Each format, and the module here whose `render(report, view)` writes it. The module is imported on use, so that the
# command line can offer the formats without loading any.
FORMATS = {"text": "text", "json": "json_", "markdown": "markdown", "junit": "junit"}
COMPARISON_FORMATS = ("text", "json", "markdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The display options of a report: color, width in columns, and whether to show all details."""

    color: bool = False
    width: int = 100
    verbose: bool = False


def render(
    report: "Report", form: str = "text", *, color: bool = False, width: int = 100, verbose: bool = False
) -> str:
    """Return the report in one of FORMATS, as text that UTF-8 can hold. Raise `UsageError` for an unknown format."""
    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r} (choose from {', '.join(FORMATS)})")
    module = import_module(f"pv.report.{FORMATS[form]}")
    return writable(module.render(report, View(color=color, width=width, verbose=verbose)))


def writable(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot hold, as backslash escapes (in JSON: their notation)."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
