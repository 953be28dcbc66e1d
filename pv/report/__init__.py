"""The formats of a report. They format what the verdict says and conclude nothing."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pv.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pv.results.saved.changes import Compared
    from pv.results.verdict import Report

__all__ = ["COMPARISON_FORMATS", "FORMATS", "MAX_BYTES", "View", "formats", "render"]

# Each format, and the module here whose `render(report, view)` writes it. The module is imported on use, so that the
# command line can offer the formats without loading any.
FORMATS = {
    "text": "text",
    "json": "json_",
    "markdown": "markdown",
    "junit": "junit",
    "github": "github",
    "sarif": "sarif",
    "html": "html.page",
}
MAX_BYTES = 1 << 20  # of the job summary of one step on GitHub
COMPARISON_FORMATS = ("text", "json", "markdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The display options of a report: color, width in columns, and whether to show all details.

    compared: the differences from a base. max_bytes: the size of a Markdown report; what does not fit is counted.
    folder: the working directory, from the root of the repository, which annotations and SARIF name files from.
    """

    color: bool = False
    width: int = 100
    verbose: bool = False
    compared: "Compared | None" = None
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
    compared: "Compared | None" = None,
    max_bytes: int = MAX_BYTES,
    folder: str = "",
) -> str:
    """Return the report in a format, as text that UTF-8 can hold.

    Args:
        form: One of FORMATS, or the name of an entry point `pv.formats`, which is a module with such a `render`.

    Raises:
        UsageError: The format is unknown.
        PluginError: The format of another package cannot be loaded.
    """
    module = _module(form)
    view = View(color=color, width=width, verbose=verbose, compared=compared, max_bytes=max_bytes, folder=folder)
    return writable(module.render(report, view))


def formats() -> tuple[str, ...]:
    """Return the names of all formats: those of `pv`, then those of other packages."""
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
    """Return the text with lone surrogates, which UTF-8 cannot hold, as backslash escapes (in JSON: their notation)."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
