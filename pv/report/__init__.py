"""Reports format what the verdict says; they conclude nothing."""

from pv.errors import UsageError
from pv.report import json_, junit, markdown, text
from pv.verdict import Report

__all__ = ["FORMATS", "render"]

FORMATS = ("text", "json", "markdown", "junit")


def render(report: Report, form: str = "text", *, color: bool = False, width: int = 100) -> str:
    """The report in one of FORMATS. Raises UsageError for another one."""
    match form:
        case "text":
            return _writable(text.render(report, color=color, width=width))
        case "json":
            return _writable(json_.render(report))
        case "markdown":
            return _writable(markdown.render(report))
        case "junit":
            return junit.render(report)
    raise UsageError(f"there is no format {form!r}; the formats are {', '.join(FORMATS)}")


def _writable(text: str) -> str:
    """The text with half surrogates, which UTF-8 cannot hold, as escapes; in JSON that is how they are written."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
