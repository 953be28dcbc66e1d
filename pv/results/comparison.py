"""The result of `pv compare`: the claims of one contract as rows, and one column for each subject."""

from collections.abc import Iterator
from dataclasses import dataclass

from pv.contract.finding import Severity
from pv.contract.model import Contract, Falsifier
from pv.errors import ExitCode
from pv.results.outcome import Outcome, Result
from pv.results.verdict import FAILING, ContractVerdict, Report, Status

BROKEN = (Outcome.ERROR, Outcome.VACUOUS)
"""The outcomes that fail a comparison for any subject."""
MEASURED = (Outcome.HELD, Outcome.PROVED, Outcome.FALSIFIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The results of one subject.

    Attributes:
        name: The name in the table.
        target: The subject as `module` or `module:attribute`.
        own: Whether the subject is the contract's own subject.
        package: The distribution that the subject needs, with the installed version.
        report: The report; None if the subject could not be tried.
        missing: The reason why the subject could not be tried; "" if it was tried.
    """

    name: str
    target: str
    own: bool = False
    package: str = ""
    report: Report | None = None
    missing: str = ""

    @property
    def verdict(self) -> ContractVerdict | None:
        """Return the verdict on the subject; None if the subject could not be tried."""
        return self.report.contracts[0] if self.report is not None and self.report.contracts else None

    @property
    def results(self) -> tuple[Result, ...]:
        """Return the results of the subject; () if the subject could not be tried."""
        return self.verdict.results if self.verdict is not None else ()

    def outcome(self, falsifier: Falsifier) -> Outcome:
        """Return the outcome of one claim; a claim that was not tried is undecided."""
        outcomes = (result.outcome for result in self.results if result.falsifier.id == falsifier.id)
        return next(outcomes, Outcome.UNDECIDED)

    def count(self, outcome: Outcome) -> int:
        """Return the number of claims with this outcome."""
        return sum(result.outcome is outcome for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The claims of one contract on several subjects.

    Attributes:
        strict: Whether a falsified claim of any subject fails the comparison, not only of the contract's own subject.
        interrupted: Whether Ctrl-C ended the comparison.
    """

    contract: Contract
    columns: tuple[Column, ...]
    strict: bool = False
    interrupted: bool = False

    @property
    def reports(self) -> list[Report]:
        """Return the reports of the subjects that could be tried."""
        return [column.report for column in self.columns if column.report is not None]

    @property
    def rows(self) -> tuple[Falsifier, ...]:
        """Return the claims with results, in the order of the contract; all claims if none has a result."""
        shown = {result.falsifier.id for column in self.columns for result in column.results}
        return tuple(f for f in self.contract.claims if f.id in shown or not shown)

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code; of several problems, the worst decides.

        A comparison is undecided if the contract's own subject does not pass, or if no claim was decided.
        """
        own_verdicts = [column.verdict for column in self.columns if column.own]
        passed = all(verdict is not None and verdict.status is Status.PASS for verdict in own_verdicts)
        measured = any(column.count(outcome) for column in self.columns for outcome in MEASURED)
        return ExitCode.worst(
            interrupted=self.interrupted,
            refused=any(report.exit_code is ExitCode.REFUSED for report in self.reports),
            failed=any(self._fails(column) for column in self.columns),
            undecided=not (passed and measured),
        )

    def _fails(self, column: Column) -> bool:
        """Return whether a column has a lint error, an error, a vacuous claim or a falsified claim.

        A falsified claim counts only for the contract's own subject, or if the comparison is strict.
        """
        findings = column.verdict.findings if column.verdict is not None else ()
        failing = FAILING if column.own or self.strict else BROKEN
        return any(finding.severity is Severity.ERROR for finding in findings) or any(map(column.count, failing))

    def failures(self) -> Iterator[tuple[Column, Result]]:
        """Yield the results that are falsified, errors or vacuous, with their columns."""
        for column in self.columns:
            yield from ((column, result) for result in column.results if result.outcome in FAILING)
