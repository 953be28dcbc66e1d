"""The formats of a report. A format presents verdicts and decides nothing.

text, html, markdown, junit, github, sarif, json_   the formats of a validation; `matrix`: of `pv compare`
contract_line   the line of a contract in the terminal, and its verdict as a sentence
details         one failed claim: location, counterexample, effort, the command that repeats it
phrases         sentences and figures that several formats share
listing, explanation   the output of `pv list` and `pv explain`
wrapping        line breaks for a terminal
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pv.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pv.results.saved.changes import BaseComparison
    from pv.results.verdict import Report

__all__ = ["COMPARISON_FORMATS", "FORMATS", "MAX_BYTES", "View", "formats", "render"]

# The module in this package whose `render(report, view)` writes a format, by name of the format. It is imported on use,
# so that the command line can list the formats without loading any.
FORMATS = {
    "text": "text",
    "json": "json_",
    "markdown": "markdown",
    "junit": "junit",
    "github": "github",
    "sarif": "sarif",
    "html": "html.page",
}
MAX_BYTES = 1 << 20  # the limit of GitHub for the job summary of one step
COMPARISON_FORMATS = ("text", "json", "markdown")


class View(NamedTuple):
    """The display options of a report.

    Attributes:
        color: Use terminal colors.
        width: Width of the terminal in columns.
        verbose: Show all details.
        compared: The comparison with a base.
        max_bytes: Maximum size of a Markdown report; parts that do not fit are replaced by their number.
        folder: The working directory relative to the root of the repository; annotations and SARIF need paths from the
            root.
    """

    color: bool = False
    width: int = 100
    verbose: bool = False
    compared: "BaseComparison | None" = None
    max_bytes: int = MAX_BYTES
    folder: str = ""

    def exit_code(self, report: "Report") -> ExitCode:
        """Return the exit code of the report and its comparison."""
        return report.exit_code if self.compared is None else self.compared.exit_code(report)


def render(
    report: "Report",
    form: str = "text",
    *,
    color: bool = False,
    width: int = 100,
    verbose: bool = False,
    compared: "BaseComparison | None" = None,
    max_bytes: int = MAX_BYTES,
    folder: str = "",
) -> str:
    """Return the report in a format, as text that can be encoded as UTF-8.

    Args:
        report: The report.
        form: One of FORMATS, or the name of an entry point `pv.formats`: a module with a function `render`.
        color: Use terminal colors.
        width: Width of the terminal in columns.
        verbose: Show all details.
        compared: The comparison with a base.
        max_bytes: Maximum size of a Markdown report.
        folder: The working directory relative to the root of the repository.

    Raises:
        UsageError: The format is unknown.
        PluginError: The format of another package cannot be loaded.
    """
    module = _module(form)
    view = View(color=color, width=width, verbose=verbose, compared=compared, max_bytes=max_bytes, folder=folder)
    return writable(module.render(report, view))


def formats() -> tuple[str, ...]:
    """Return the names of all formats: the formats of `pv`, then the formats of other packages."""
    from pv.contract import plugins  # not at import: the command line loads this module for its help

    return (*FORMATS, *(name for name in plugins.declared(plugins.FORMATS) if name not in FORMATS))


def _module(form: str) -> Any:
    """Return the module of a format. Raise `UsageError` for an unknown one, `PluginError` if it cannot be loaded."""
    from pv.contract import plugins

    if form in FORMATS:
        return import_module(f"pv.report.{FORMATS[form]}")
    if form not in formats():
        raise UsageError(f"unknown format {form!r} (choose from {', '.join(formats())})")
    return plugins.load(plugins.FORMATS, form)


def writable(text: str) -> str:
    """Return the text with lone surrogates as backslash escapes, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
