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
            return text.render(report, color=color, width=width)
        case "json":
            return json_.render(report)
        case "markdown":
            return markdown.render(report)
        case "junit":
            return junit.render(report)
    raise UsageError(f"there is no format {form!r}; the formats are {', '.join(FORMATS)}")
