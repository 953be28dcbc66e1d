"""Several subjects held against one contract: a column each, and what follows from them."""

from collections.abc import Iterator
from dataclasses import dataclass

from pv.cells import Cell, Outcome
from pv.model import Contract, Falsifier
from pv.verdict import ContractVerdict, Report, Status

BROKEN = (Outcome.ERROR, Outcome.VACUOUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One subject. `report` is None where it could not be tried, and then `missing` says why."""

    name: str
    target: str
    own: bool = False
    package: str = ""
    """The distribution that it needs, with the version that was tried."""
    report: Report | None = None
    missing: str = ""

    @property
    def verdict(self) -> ContractVerdict | None:
        return self.report.contracts[0] if self.report is not None and self.report.contracts else None

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.verdict.cells if self.verdict is not None else ()

    def outcome(self, falsifier: Falsifier) -> Outcome:
        """What is known of one claim; a claim of which nothing was tried is undecided."""
        found = (cell.outcome for cell in self.cells if cell.falsifier.id == falsifier.id)
        return next(found, Outcome.UNDECIDED)

    def count(self, outcome: Outcome) -> int:
        return sum(cell.outcome is outcome for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One contract's claims against subjects. With `strict` a refuted claim of any of them counts."""

    contract: Contract
    columns: tuple[Column, ...]
    strict: bool = False
    interrupted: bool = False

    @property
    def rows(self) -> tuple[Falsifier, ...]:
        """The claims that were asked about."""
        shown = {cell.falsifier.id for column in self.columns for cell in column.cells}
        return tuple(f for f in self.contract.falsifiers if f.id in shown or not shown)

    @property
    def exit_code(self) -> int:
        """130 interrupted; 3 refused; 1 the contract's own subject fails, or a cell is broken; 2 nothing known; 0."""
        if self.interrupted:
            return 130
        reports = [column.report for column in self.columns if column.report is not None]
        if any(report.exit_code == 3 for report in reports):
            return 3
        if any(self._fails(column) for column in self.columns):
            return 1
        own = [column for column in self.columns if column.own]
        decided = all(column.verdict is not None and column.verdict.status is Status.PASS for column in own)
        measured = any(column.count(o) for column in self.columns for o in (Outcome.SURVIVED, Outcome.FALSIFIED))
        return 0 if decided and measured else 2

    def _fails(self, column: Column) -> bool:
        """A peer's fault is what was asked for; a cell that could not be judged, or our own fault, is not."""
        red = (Outcome.FALSIFIED,) if column.own or self.strict else ()
        linted = column.verdict is not None and any(f.severity.value == "error" for f in column.verdict.findings)
        return linted or any(column.count(outcome) for outcome in (*BROKEN, *red))

    def refuted(self) -> Iterator[tuple[Column, Cell]]:
        """The cells that need a reader: refuted ones and broken ones, column by column."""
        for column in self.columns:
            yield from ((column, cell) for cell in column.cells if cell.outcome in (Outcome.FALSIFIED, *BROKEN))

    def unclaimed(self) -> Iterator[tuple[Column, str, list[str]]]:
        """What a subject does not claim: why, and the ids."""
        for column in self.columns:
            reasons: dict[str, list[str]] = {}
            for cell in column.cells:
                if cell.outcome is Outcome.NOT_CLAIMED:
                    reasons.setdefault(cell.reason, []).append(cell.falsifier.id)
            yield from ((column, why, ids) for why, ids in reasons.items())
