"""The report as annotations of GitHub Actions: workflow commands on standard output, worst first."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from pv.contract.finding import Location
from pv.contract.wording import count
from pv.report import View, details, phrases
from pv.report.wrapping import plain
from pv.results import requirements
from pv.results.outcome import Outcome
from pv.results.saved.changes import BaseComparison, ChangeKind
from pv.results.verdict import FAILING, ContractVerdict, Report, Status

MAX_ANNOTATIONS = 10  # GitHub shows at most 10 annotations of a level from one step
MAX_MESSAGE = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One workflow command: `level` is error, warning or notice."""

    level: str
    title: str
    message: str
    location: Location | None = None

    def line(self, folder: str) -> str:
        """Return the workflow command. Its path is relative to the root of the repository, which contains `folder`."""
        at, file = self.location, ""
        if at is not None:
            path = (PurePath(folder) / at.path).as_posix()
            file = f"file={_escape_property(path)},line={at.line},col={at.column},"
        return f"::{self.level} {file}title={_escape_property(self.title)}::{_escape(self.message)}"


def render(report: Report, view: View) -> str:
    """Return at most `MAX_ANNOTATIONS` annotations, worst first, then a plain line that counts the omitted ones."""
    all_annotations = list(annotations(report, view))
    number_omitted = len(all_annotations) - MAX_ANNOTATIONS
    omitted = f"{count(number_omitted, 'more annotation')} not shown; " if number_omitted > 0 else ""
    lines = [annotation.line(view.folder) for annotation in all_annotations[:MAX_ANNOTATIONS]]
    return "".join(f"{line}\n" for line in [*lines, f"pv: {omitted}{_escape(phrases.closing_line(report, view))}"])


def annotations(report: Report, view: View) -> Iterator[Annotation]:
    """Yield an annotation for every refusal, lint error and failure, worst first.

    Then yield annotations for differences from the base, undecided contracts, the reasons why the validation ended
    early, and unmet requirements of the report. Notices have no annotation.
    """
    for finding in phrases.refusals_and_errors(report):
        message = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
        yield Annotation(level="error", title=finding.code, message=message, location=finding.location)
    for outcome in FAILING:
        for verdict in report.contracts:
            yield from _failures(verdict, outcome, view)
    if view.compared is not None:
        yield from _changes(view.compared, view)
    for verdict in report.contracts:
        if verdict.status is Status.UNDECIDED and not phrases.is_unfinished(verdict):
            title = f"undecided: {phrases.contract_title(verdict)}"
            message = "; ".join(requirements.unmet_requirements(verdict))
            yield Annotation(level="warning", title=title, message=message, location=verdict.contract.location)
    ended_early = [phrases.unfinished_sentence(*group) for group in phrases.group_unfinished(report)]
    for text in (*ended_early, *requirements.unmet_by_report(report)):
        yield Annotation(level="warning", title="pv", message=text)


def _changes(compared: BaseComparison, view: View) -> Iterator[Annotation]:
    """Yield annotations for weaker requirements, smaller measurements and stale evidence, then for the notes."""
    for change in compared.changes:
        if change.kind in (ChangeKind.WEAKER, ChangeKind.WAIVED, ChangeKind.LESS, ChangeKind.STALE):
            yield Annotation(
                level="error" if change in compared.failing else "warning",
                title=f"{change.kind.value}: {change.contract} {change.claim}".strip(),
                message=f"{change.place}: {change.text}" if change.removed else change.text,
                location=details.change_location(change, view),
            )
    yield from (Annotation(level="warning", title="pv", message=note) for note in compared.notes)


def _failures(verdict: ContractVerdict, outcome: Outcome, view: View) -> Iterator[Annotation]:
    """Yield an annotation for every result of a contract with this outcome."""
    for result in verdict.results:
        if result.outcome is outcome:
            shown_lines = [f"{label}: {text}" for label, text in details.lines(result, verdict)]
            if not result.falsifier.is_of_script:
                shown_lines.append(f"contract: {result.falsifier.location}")
            yield Annotation(
                level="error" if requirements.blocks_gate(result) else "warning",
                title=f"{outcome.value}: {result.falsifier.id}{phrases.on_device(result)}",
                message="\n".join(shown_lines)[:MAX_MESSAGE],
                location=details.result_location(result, view),
            )


def _escape(text: str) -> str:
    """Escape a text for the message of a workflow command, which ends at a line feed."""
    return plain(text.replace("\r", "\n")).replace("%", "%25").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """Escape a text for a property of a workflow command, which also ends at a colon or comma."""
    # Percent signs first (in `_escape`): otherwise the escapes themselves would be escaped.
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
