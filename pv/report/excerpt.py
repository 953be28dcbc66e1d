"""The line of a contract that a finding points to, and the rule of its code."""

from collections.abc import Iterator

from pv.contract.finding import Finding

MAX_WIDTH = 120


def excerpt(finding: Finding) -> Iterator[str]:
    """Yield the line with a mark below its column, and how to read about the code."""
    line, column = finding.location.line, finding.location.column
    try:
        text = finding.location.path.read_text(encoding="utf-8", errors="replace").splitlines()[line - 1]
    except (OSError, IndexError):
        text = ""
    if text and column <= MAX_WIDTH:
        yield f"  {line:>5} | {text[:MAX_WIDTH]}"
        yield f"        | {' ' * (column - 1)}^"
    yield f"        = pv explain {finding.code}"
