"""The kill matrix of a contract: which falsifier killed which planted fault."""

from collections.abc import Mapping

from pv.report.html.markup import Cell, Html, hidden, join, named, table, tag
from pv.results.outcome import Result, killed
from pv.results.trial import Trial, TrialStatus
from pv.results.verdict import ContractVerdict

# A larger matrix is mostly empty; it is then listed by mutant.
MAX_CELLS = 3000
MARKS = {"killed": "✓", "survived": "✗", "not judged": "–", "not tried": "·"}


def matrix(verdict: ContractVerdict) -> Html:
    """Return the section of a contract's mutants; nothing if it has none."""
    rows = [result for result in verdict.results if _judges(result)]
    mutants = {mutant.id: mutant.fault for mutant in verdict.contract.mutants}
    automatic = any(not result.falsifier.kills and result.mutants for result in rows)
    equations = any(result.trial is not None and result.trial.equation_mutants for result in rows)
    if not rows:
        return join(None)
    small = len(rows) * len(mutants) <= MAX_CELLS
    shown = _small(rows, mutants, automatic, equations) if small else _list(rows, mutants)
    return tag("details", tag("summary", f"Planted faults ({len(mutants)} declared)"), shown, open=small)


def _judges(result: Result) -> bool:
    equations = result.trial is not None and result.trial.equation_mutants is not None
    return result.device == "cpu" and bool(result.falsifier.kills or result.mutants or equations)


def _small(rows: list[Result], mutants: Mapping[str, str], automatic: bool, equations: bool) -> Html:
    heads = named("falsifier") | {id_: tag("span", id_, title=fault) for id_, fault in mutants.items()}
    heads |= named("automatic mutants") if automatic else {}
    heads |= named("equation mutants") if equations else {}
    return table("Falsifiers and the faults they kill", heads, [_row(r, mutants, automatic, equations) for r in rows])


def _row(result: Result, mutants: Mapping[str, str], automatic: bool, equations: bool) -> list[Cell]:
    trials = {trial.mutant: trial for trial in result.mutants}
    cells = [_cell(outcome_text(result, id_, trials.get(id_))) for id_ in mutants]
    cells += [_counted(_automatic(result))] if automatic else []
    cells += [_counted(_equations(result))] if equations else []
    return [Cell(result.falsifier.id, head=True), *cells]


def _counted(text: str) -> Cell:
    return Cell(text, class_="mutant" if text else "mutant unnamed")


def outcome_text(result: Result, mutant: str, trial: Trial | None) -> str:
    """Return the outcome of a declared mutant under a falsifier; "" if the falsifier does not name it."""
    if mutant not in result.falsifier.kills:
        return ""
    if trial is None or trial.status is TrialStatus.CANCELLED:
        return "not tried"
    if killed(trial):
        return "killed"
    return "survived" if trial.status is TrialStatus.HELD else "not judged"


def _cell(text: str) -> Cell:
    if not text:
        return Cell(hidden("not named"), class_="mutant unnamed")
    mark = tag("span", MARKS[text], aria_hidden="true")
    return Cell([mark, " ", tag("span", text, class_="word")], class_=f"mutant {text.replace(' ', '-')}")


def _automatic(result: Result) -> str:
    if result.falsifier.kills or not result.mutants:
        return ""
    return f"{sum(map(killed, result.mutants))} of {len(result.mutants)} killed"


def _equations(result: Result) -> str:
    found = result.trial.equation_mutants if result.trial is not None else None
    return f"{found.killed} of {found.total} killed" if found is not None else ""


def _list(rows: list[Result], mutants: Mapping[str, str]) -> Html:
    """Return a row for each mutant with its falsifiers, for a matrix that would be too large."""
    found: dict[str, list[str]] = {id_: [] for id_ in mutants}
    for result in rows:
        trials = {trial.mutant: trial for trial in result.mutants}
        for id_ in result.falsifier.kills:
            found.setdefault(id_, []).append(f"{result.falsifier.id}: {outcome_text(result, id_, trials.get(id_))}")
    lines = [[Cell(id_, head=True), Cell(mutants.get(id_, "")), Cell("; ".join(by))] for id_, by in found.items()]
    return table("Faults and their falsifiers", named("mutant", "fault", "falsifiers"), lines)
