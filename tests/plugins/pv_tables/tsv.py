"""The report as tab-separated values, one line a result."""

from pv.report import View
from pv.results.verdict import Report


def render(report: Report, view: View) -> str:
    """Return a line for each result: claim and outcome."""
    results = (result for verdict in report.contracts for result in verdict.results)
    return "".join(f"{result.falsifier.id}\t{result.outcome.value}\n" for result in results)
